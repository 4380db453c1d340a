//! `basic_auth` of routes: name and password before anything is answered (RFC 7617).

use std::sync::Arc;

use haulier_http::{Request, Response};
use haulier_proto::field::Fields;
use tokio::sync::Semaphore;

use super::Early;
use crate::answer::error_page;
use crate::context::Visit;
use crate::password::{Htpasswd, base64};
use crate::site::Site;

/// Passwords that are hashed at once in the whole process: guessing must not take all cores, nor all the threads that
/// read cold files.
static HASHING: Semaphore = Semaphore::const_new(2);

/// A password to be hashed, which takes too long for a thread that serves.
#[derive(Debug)]
pub(crate) struct PasswordCheck {
    users: Arc<Htpasswd>,
    credentials: Credentials,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: Vec<u8>,
}

impl PasswordCheck {
    /// Whether it fits. If so, the filter lets the next request with it pass.
    pub(crate) async fn run(self) -> bool {
        let Ok(_permit) = HASHING.acquire().await else {
            return false;
        };
        let hashed = tokio::task::spawn_blocking(move || {
            let Credentials { user, password } = &self.credentials;
            // Others with the same password may have waited in front.
            self.users.remembers(user, password) || self.users.verify(user, password)
        });
        hashed.await.unwrap_or(false)
    }
}

/// Lets pass who is known, asks the others.
pub(super) fn on_request(visit: &Visit<'_>) -> Option<Early> {
    let users = visit.routes.users?;
    visit.request.asks_password.set(true);
    let Some(credentials) = credentials(visit.request.head.fields()) else {
        return Some(Early::Response(ask(visit.site, visit.request)));
    };
    if users.remembers(&credentials.user, &credentials.password) {
        return None;
    }
    Some(Early::Check(PasswordCheck {
        users: Arc::clone(users),
        credentials,
    }))
}

/// 401 with what is wanted. The site's name is its realm: browsers keep passwords by it.
pub(crate) fn ask(site: &Site, request: &Request) -> Response {
    let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", site.settings.name);
    error_page::respond(401, None, Some(site), &request.id, None)
        .with("WWW-Authenticate", challenge)
        .with("Cache-Control", "no-store")
}

/// The name a client gave: for PHP (REMOTE_USER) once it was let pass, and for the log.
pub(crate) fn user(fields: &Fields) -> Option<String> {
    credentials(fields).map(|credentials| credentials.user)
}

/// RFC 7617 §2: the name holds no colon, the password may.
fn credentials(fields: &Fields) -> Option<Credentials> {
    let value = fields.get("Authorization")?;
    let (scheme, encoded) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let decoded = base64::decode(encoded.trim_ascii())?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some(Credentials {
        user,
        password: decoded[colon + 1..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_name_and_password() {
        let rows = [
            (Some("Basic YW5uYTpob3JzZQ=="), Some(("anna", "horse"))),
            (Some("basic  YW5uYTo="), Some(("anna", ""))),
            (Some("Basic YTpiOmM="), Some(("a", "b:c"))),
            (Some("Basic YW5uYQ=="), None),
            (Some("Bearer YW5uYTpob3JzZQ=="), None),
            (Some("Basic"), None),
            (Some("Basic !"), None),
            (None, None),
        ];
        for (value, expected) in rows {
            let mut fields = Fields::new();
            if let Some(value) = value {
                fields.append("Authorization", value);
            }
            let expected = expected.map(|(user, password)| Credentials {
                user: user.to_owned(),
                password: password.as_bytes().to_vec(),
            });
            assert_eq!(credentials(&fields), expected, "{value:?}");
        }
    }
}
