//! Settings of the service in a configuration.

use haulier_settings::settings_table;

settings_table! {
    /// The rows of `[site.NAME.images]` that the service takes as written.
    pub struct ServiceRows = "site.NAME.images" =>

    /// Options of the service.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ServiceOptions {}

    /// New variants of an image stored within a day; further ones are rendered but not stored. 0 stores all.
    variants: Count(0, "0 keeps all") -> usize = 64;
}
