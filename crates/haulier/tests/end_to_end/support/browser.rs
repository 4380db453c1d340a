//! What a browser adds to the client: cookies, redirects, forms read from pages.

use std::net::SocketAddr;

use super::client::{Connection, Request, Response};

/// A visitor with a cookie jar and one kept connection.
#[derive(Debug)]
pub(crate) struct Browser {
    address: SocketAddr,
    connection: Option<Connection>,
    cookies: Vec<(String, String)>,
}

impl Browser {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
            cookies: Vec::new(),
        }
    }

    /// GETs a page and follows redirects inside the site.
    #[track_caller]
    pub(crate) fn get(&mut self, target: &str) -> Response {
        self.visit(Request::get(target))
    }

    /// POSTs a form and follows redirects inside the site.
    #[track_caller]
    pub(crate) fn submit(&mut self, target: &str, values: &[(&str, &str)]) -> Response {
        self.visit(Request::form(target, values))
    }

    #[track_caller]
    fn visit(&mut self, request: Request) -> Response {
        let mut response = self.ask(request);
        for _ in 0..5 {
            if !matches!(response.status(), 301 | 302 | 303 | 307 | 308) {
                return response;
            }
            let location = response
                .field("Location")
                .expect("a redirect names its target")
                .to_owned();
            response = self.ask(Request::get(&self.path_of(&location)));
        }
        panic!("more than five redirects, the last to {:?}", response.field("Location"));
    }

    /// Sends one request with the cookies of this site and keeps those it gets.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: Request) -> Response {
        let host = self.address.to_string();
        let mut request = request.with("Host", &host);
        if !self.cookies.is_empty() {
            let cookies = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
            request = request.with("Cookie", &cookies.collect::<Vec<_>>().join("; "));
        }
        let mut connection = self.connection.take().unwrap_or_else(|| Connection::open(self.address));
        let response = connection.ask(&request);
        if response.field("Connection") != Some("close") {
            self.connection = Some(connection);
        }
        for cookie in response.head.values("Set-Cookie") {
            self.keep(cookie);
        }
        response
    }

    fn keep(&mut self, cookie: &str) {
        let pair = cookie.split(';').next().unwrap_or_default();
        let (name, value) = pair.split_once('=').expect("Set-Cookie holds name=value");
        self.cookies.retain(|(known, _)| known != name);
        if value != "deleted" {
            self.cookies.push((name.to_owned(), value.to_owned()));
        }
    }

    fn path_of(&self, location: &str) -> String {
        let inside = location
            .strip_prefix(&format!("http://{}", self.address))
            .unwrap_or(location);
        assert!(
            inside.starts_with('/') && !inside.starts_with("//"),
            "redirect out of the site: {location}"
        );
        inside.split('#').next().unwrap_or_default().to_owned()
    }
}

/// The value of the `<input>` of this name in a page.
#[track_caller]
pub(crate) fn input_value(page: &str, name: &str) -> String {
    let tags = page.split('<').filter(|tag| tag.starts_with("input"));
    let tag = tags.into_iter().find(|tag| attribute(tag, "name") == Some(name));
    let value = tag.and_then(|tag| attribute(tag, "value"));
    value
        .unwrap_or_else(|| panic!("no <input name={name:?}> in the page: {page}"))
        .to_owned()
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let after = tag.split_once(&format!(" {name}=\""))?.1;
    after.split('"').next()
}
