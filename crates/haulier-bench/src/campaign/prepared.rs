//! A target ready to be measured: its address, requests and processes.

use super::{CampaignError, Options};
use crate::job::{Destination, Expected, Outgoing, StatusRule, TlsOptions};
use crate::metrics;
use crate::probe::Probed;
use crate::process::Processes;
use crate::result;
use crate::target::{Address, Target, Template};
use haulier_client::url::Url;

/// A target, resolved, with its requests encoded.
pub(super) struct PreparedTarget {
    pub(super) target: Target,
    pub(super) destination: Destination,
    pub(super) tls: Option<TlsOptions>,
    pub(super) tunnel: Option<String>,
    pub(super) requests: Vec<Outgoing>,
    pub(super) order: Vec<u32>,
    pub(super) expected: Expected,
    pub(super) probed: Option<Probed>,
    pub(super) varies: bool,
    pub(super) processes: Processes,
    /// Version of the server in its metrics.
    pub(super) version: Option<String>,
    /// It has been warmed up.
    pub(super) is_warm: bool,
}

impl PreparedTarget {
    pub(super) fn new(target: &Target, options: &Options) -> Result<Self, CampaignError> {
        let destination = target.address.resolve(options.proxy.as_deref());
        let destination = destination.map_err(|source| CampaignError::Resolve {
            target: target.name.clone(),
            source,
        })?;
        let tls = target.address.tls_name().map(|name| TlsOptions {
            server_name: name.to_owned(),
            ..options.tls.clone()
        });
        let tunnel = match &target.address {
            Address::Http(url) if tls.is_some() && options.proxy.is_some() => Some(options.template.tunnel(url)),
            _ => None,
        };
        let (requests, order) = requests(target, options)?;
        let watch = &target.watch;
        let processes = Processes::new(&watch.pids, watch.unit.as_deref()).map_err(CampaignError::Watch)?;
        let version = match &watch.metrics {
            Some(page) => metrics::version(page).map_err(|error| CampaignError::Watch(format!("{page}: {error}")))?,
            None => None,
        };
        let status = match &options.mix {
            // A log also contains requests for missing pages.
            Some(_) if options.template.mode.status != StatusRule::Any => StatusRule::NoServerError,
            _ => options.template.mode.status,
        };
        Ok(Self {
            target: target.clone(),
            destination,
            tls,
            tunnel,
            requests,
            order,
            expected: Expected {
                status,
                same_length: options.same_length,
                body: None,
                time_failures: options.template.mode.times_failures,
            },
            probed: None,
            varies: false,
            processes,
            version,
            is_warm: false,
        })
    }

    pub(super) fn described(&self) -> result::Target {
        result::Target {
            name: self.target.name.clone(),
            url: self.target.address.to_string(),
            answer: self.probed.as_ref().map(|probed| probed.answer.clone()),
            varies: self.varies,
            version: self.version.clone(),
        }
    }
}

/// The requests of a target, and their order.
fn requests(target: &Target, options: &Options) -> Result<(Vec<Outgoing>, Vec<u32>), CampaignError> {
    let Some(mix) = &options.mix else {
        return Ok((vec![options.template.request(&target.address)?], Vec::new()));
    };
    let Address::Http(base) = &target.address else {
        return Err(CampaignError::MixForFastCgi(target.name.clone()));
    };
    let mut found = Vec::new();
    for asked in &mix.requests {
        let url: Url = base.join(&asked.target).map_err(|_| CampaignError::Path {
            target: target.name.clone(),
            path: asked.target.clone(),
        })?;
        let template = Template {
            method: asked.method.clone(),
            ..options.template.clone()
        };
        found.push(template.request(&Address::Http(url))?);
    }
    Ok((found, mix.order.clone()))
}
