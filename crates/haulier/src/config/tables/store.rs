//! `[store.NAME]`.

use haulier_settings::settings_table;

settings_table! {
    /// `[store.NAME]`
    pub(crate) struct StoreTable = "store.NAME";

    /// Address of the service, such as `https://s3.example.com`.
    endpoint: Text else "the service's own";
    /// Region of the bucket.
    region: Text else "as the environment says";
    /// Access key id; for Azure the account.
    key: Text else "as the environment says";
    /// Secret access key; for Azure the key of the account.
    secret: Text else "as the environment says";
    /// Anything else, by the names of the crate `object_store`: `google_service_account = "/etc/key.json"`.
    options: Pairs = {};
}
