//! The image service: zimg's clients, the native mode, caches and stores with their servers, files of a site, commands.

mod behind;
mod bombs;
mod budget;
mod caches;
mod commands;
mod damage;
mod faults;
mod files;
mod native;
mod zimg;
