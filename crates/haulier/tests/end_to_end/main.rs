//! End-to-end tests: the real binary, real sockets, real PHP, real applications.
//!
//! One test program, so that the support code is built once. Each module is one subject; run one with
//! `cargo test -p haulier --test end_to_end php_failures::`.

mod support;

mod compression;
mod dashboard;
mod deployments;
mod development;
mod dictionaries;
mod dokuwiki;
mod endurance;
mod entity_tags;
mod example_site;
mod finish;
mod handoff;
mod http2;
mod images;
mod lifecycle;
mod limits;
mod listeners;
mod logs;
mod mediawiki;
mod metrics;
mod octane;
mod offload;
mod own_workers_load;
mod passthru;
mod php_failures;
mod php_requests;
mod php_responses;
mod phpsysinfo;
mod pools;
mod privileges;
mod reload;
mod request_ids;
mod service_manager;
mod shaarli;
mod sites;
mod static_files;
mod static_paths;
mod status;
mod symfony;
mod take_over;
mod tls;
mod tls_certificates;
mod worker_mode;
mod zend_functions;
