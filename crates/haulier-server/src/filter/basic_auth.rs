//! `basic_auth` of routes: requires name and password (RFC 7617).

use std::sync::Arc;

use haulier_http::{Request, Response};
use tokio::sync::Semaphore;

use super::EarlyResponse;
use crate::answer::error_page;
use crate::context::RequestContext;
use crate::password::{Credentials, Htpasswd, credentials};
use crate::site::Site;

/// Permits to hash passwords in the whole process: guessing must not occupy all cores, nor all threads that read cold
/// files.
static HASHING: Semaphore = Semaphore::const_new(2);

/// A password to be hashed, which takes too long for a serving thread.
#[derive(Debug)]
pub(crate) struct PasswordCheck {
    users: Arc<Htpasswd>,
    credentials: Credentials,
}

impl PasswordCheck {
    /// Verifies the password. If it is right, the filter lets the next request with it pass.
    pub(crate) async fn run(self) -> bool {
        let Ok(_permit) = HASHING.acquire().await else {
            return false;
        };
        let hashed = tokio::task::spawn_blocking(move || {
            let Credentials { user, password } = &self.credentials;
            // Another request may have verified the same password meanwhile.
            self.users.remembers(user, password) || self.users.verify(user, password)
        });
        hashed.await.unwrap_or(false)
    }
}

/// Lets requests with a known password pass, and asks others for one.
pub(super) fn on_request(context: &RequestContext<'_>) -> Option<EarlyResponse> {
    let users = context.routes.users?;
    context.request.asks_password.set(true);
    let Some(credentials) = credentials(context.request.head.fields()) else {
        return Some(EarlyResponse::Response(ask(context.site, context.request)));
    };
    if users.remembers(&credentials.user, &credentials.password) {
        return None;
    }
    Some(EarlyResponse::Check(PasswordCheck {
        users: Arc::clone(users),
        credentials,
    }))
}

/// 401 with a challenge. The realm is the site's name: browsers store passwords by it.
pub(crate) fn ask(site: &Site, request: &Request) -> Response {
    let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", site.settings.name);
    error_page::respond(401, None, Some(site), &request.id, None)
        .with("WWW-Authenticate", challenge)
        .with("Cache-Control", "no-store")
}
