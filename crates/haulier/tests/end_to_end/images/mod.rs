//! The image service: zimg's clients, the native mode, caches and stores with their servers, files of a site, commands.

mod caches;
mod commands;
mod files;
mod native;
mod zimg;
