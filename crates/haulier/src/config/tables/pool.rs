//! `[pool.NAME]`

use haulier_php::{ExternalRows, PoolRows, SupervisedRows};
use haulier_settings::settings_table;

settings_table! {
    /// `[pool.NAME]`
    pub(crate) struct PoolTable = "pool.NAME";

    /// PHP that haulier starts.
    supervised: Rows(SupervisedRows);
    /// Servers that another program runs.
    external: Rows(ExternalRows);
    /// The requests of both.
    pool: Rows(PoolRows);
}
