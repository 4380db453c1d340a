//! Settings of the service in a configuration.

use haulier_settings::settings_table;

settings_table! {
    /// The rows of `[site.NAME.images]` that the service takes as written.
    pub struct ServiceRows = "site.NAME.images" =>

    /// Options of the service.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ServiceOptions {}

    /// New variants of an image that are kept within a day; more are made but kept nowhere. 0 keeps all.
    variants: Count(0, "0 keeps all") -> usize = 64;
}
