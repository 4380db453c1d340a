//! What a script sees of a request: superglobals, bodies, uploads, sessions, paths (RFC 3875, `$_SERVER`).

use serde_json::Value;

use super::support::browser::Browser;
use super::support::client::Request;
use super::support::haulier::Haulier;
use super::support::php_fpm::Socket;
use super::support::site::{Php, Site};

const ALL: [Php; 4] = [Php::Cgi, Php::Embedded, Php::Fpm(Socket::Unix), Php::Fpm(Socket::Tcp)];

const SHOW: &str = r#"
    header('Content-Type: application/json');
    echo json_encode(['server' => $_SERVER, 'get' => $_GET, 'post' => $_POST, 'cookie' => $_COOKIE,
        'request' => $_REQUEST, 'files' => $_FILES, 'input' => base64_encode(file_get_contents('php://input'))],
        JSON_INVALID_UTF8_SUBSTITUTE | JSON_PARTIAL_OUTPUT_ON_ERROR);
"#;

fn show() -> Site {
    Site::new().php("show.php", SHOW)
}

#[track_caller]
fn shown(server: &Haulier, request: &Request) -> Value {
    let response = server.ask(request).expect(200);
    serde_json::from_str(&response.text()).unwrap_or_else(|error| panic!("{error}: {}", response.text()))
}

#[test]
fn a_script_sees_the_request_as_it_was_sent() {
    for php in ALL {
        let site = show().run_by(php);
        let script = site.root().join("show.php").display().to_string();
        let root = site.root().display().to_string();
        let server = site.start();
        let request = Request::get("/show.php?a=1&b[]=2&b[]=%C3%A4&raw=%zz")
            .with("Host", "shop.example")
            .with("Cookie", "one=1; two=zwei")
            .with("X-Own", "yes")
            .with("User-Agent", "test/1");
        let seen = shown(&server, &request);
        let vars = &seen["server"];
        let port = server.address().port().to_string();
        let expected = [
            ("REQUEST_METHOD", "GET"),
            ("REQUEST_URI", "/show.php?a=1&b[]=2&b[]=%C3%A4&raw=%zz"),
            ("QUERY_STRING", "a=1&b[]=2&b[]=%C3%A4&raw=%zz"),
            ("SCRIPT_NAME", "/show.php"),
            ("PHP_SELF", "/show.php"),
            ("SCRIPT_FILENAME", &script),
            ("DOCUMENT_ROOT", &root),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("REQUEST_SCHEME", "http"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("SERVER_ADDR", "127.0.0.1"),
            ("SERVER_PORT", &port),
            ("HTTP_HOST", "shop.example"),
            ("SERVER_NAME", "shop.example"),
            ("HTTP_X_OWN", "yes"),
            ("HTTP_USER_AGENT", "test/1"),
        ];
        for (name, value) in expected {
            assert_eq!(vars[name], value, "{name} by {php:?}");
        }
        assert!(vars["PATH_INFO"].is_null() && vars["HTTPS"].is_null(), "{vars}");
        assert!(
            vars["REMOTE_PORT"]
                .as_str()
                .is_some_and(|port| port.parse::<u16>().is_ok())
        );
        assert_eq!(seen["get"]["b"][1], "ä");
        assert_eq!(seen["cookie"]["two"], "zwei");
    }
}

#[test]
fn path_info_is_split_at_the_existing_script() {
    for php in ALL {
        let server = show().run_by(php).php("dir/index.php", SHOW).start();
        let rows = [
            ("/show.php/a/b?x=1", "/show.php", "/a/b"),
            ("/show.php/", "/show.php", "/"),
            ("/show.php/caf%C3%A9%20x", "/show.php", "/café x"),
            ("/show.php/other.php", "/show.php", "/other.php"),
            ("/dir/index.php/x", "/dir/index.php", "/x"),
        ];
        for (target, script, info) in rows {
            let vars = &shown(&server, &Request::get(target))["server"];
            assert_eq!(vars["SCRIPT_NAME"], script, "{target} by {php:?}");
            assert_eq!(vars["PATH_INFO"], info, "{target} by {php:?}");
            assert_eq!(vars["PHP_SELF"], format!("{script}{info}"), "{target} by {php:?}");
            assert_eq!(vars["REQUEST_URI"], target, "{target} by {php:?}");
        }
        assert_eq!(
            shown(&server, &Request::get("/dir/"))["server"]["SCRIPT_NAME"],
            "/dir/index.php"
        );
        // CVE-2019-11043: a line end in PATH_INFO is no end of it.
        let strange = server.get("/show.php/a%0ab%0d%0aX:%20y");
        assert!(matches!(strange.status(), 200 | 400 | 404), "{}", strange.status());
        assert!(strange.field("X").is_none());
    }
}

#[test]
fn a_front_controller_gets_what_is_no_file() {
    let site = show().php("index.php", SHOW).file("real.txt", "real").app("front");
    let server = site.start();
    assert_eq!(server.get("/real.txt").expect(200).text(), "real");
    let vars = &shown(&server, &Request::get("/blog/2026?x=1"))["server"];
    assert_eq!(vars["SCRIPT_NAME"], "/index.php");
    assert_eq!(vars["REQUEST_URI"], "/blog/2026?x=1");
    assert_eq!(vars["QUERY_STRING"], "x=1");
}

#[test]
fn a_plain_site_answers_404_for_what_is_not_there() {
    let server = show().php("index.php", "echo 'front';").start();
    assert_eq!(server.get("/").expect(200).text(), "front");
    server.get("/missing").expect(404);
    server.get("/missing.php").expect(404);
}

#[test]
fn forms_and_query_strings_fill_their_superglobals() {
    for php in ALL {
        let server = show().run_by(php).start();
        let seen = shown(
            &server,
            &Request::form(
                "/show.php?q=1",
                &[("name", "Zoë & co"), ("list[]", "a"), ("list[]", "b")],
            ),
        );
        assert_eq!(seen["post"]["name"], "Zoë & co");
        assert_eq!(seen["post"]["list"][1], "b");
        assert_eq!(seen["request"]["q"], "1");
        assert_eq!(seen["server"]["CONTENT_TYPE"], "application/x-www-form-urlencoded");
    }
}

#[test]
fn any_method_reaches_a_script_with_its_body() {
    let server = Site::new()
        .php(
            "m.php",
            "echo $_SERVER['REQUEST_METHOD'], ' ', file_get_contents('php://input');",
        )
        .start();
    for method in ["PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"] {
        let mut connection = server.connect();
        connection.send(format!(
            "{method} /m.php HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
        ));
        let response = connection.read_response(method).expect("an answer").expect(200);
        assert_eq!(response.text(), format!("{method} body"));
    }
    server.ask(&Request::head("/m.php")).expect(200);
}

#[test]
fn a_chunked_body_reaches_the_script_whole() {
    for php in ALL {
        let code = "echo $_SERVER['CONTENT_LENGTH'] ?? 'none', ' ', md5(file_get_contents('php://input'));";
        let server = Site::new().php("sum.php", code).run_by(php).start();
        let piece = "0123456789abcdef".repeat(4096);
        let mut connection = server.connect();
        connection.send("POST /sum.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..20 {
            connection.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        connection.send("0\r\nX-Trailer: dropped\r\n\r\n");
        let response = connection.read_response("POST").expect("an answer").expect(200);
        assert_eq!(response.text(), format!("1310720 {SUM}"));
        let form = "POST /sum.php HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(
            server.ask_raw(form).expect(200).text(),
            "0 d41d8cd98f00b204e9800998ecf8427e"
        );
    }
}

/// MD5 of "0123456789abcdef" 81,920 times.
const SUM: &str = "a3996b1bdbcbd8901131c127648e99c5";

#[test]
fn a_large_body_arrives_byte_for_byte() {
    for php in ALL {
        let server = Site::new()
            .php("echo.php", "readfile('php://input');")
            .run_by(php)
            .start();
        let body: Vec<u8> = (0..5_000_000_u32)
            .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let response = server.ask(&Request::post("/echo.php", body.clone())).expect(200);
        assert!(
            response.body == body,
            "by {php:?}: {} bytes came back",
            response.body.len()
        );
    }
}

#[test]
fn uploads_are_files_to_php() {
    const CODE: &str = r#"
        $file = $_FILES['doc'];
        $to = sys_get_temp_dir() . '/' . bin2hex(random_bytes(8));
        $is = is_uploaded_file($file['tmp_name']);
        $moved = move_uploaded_file($file['tmp_name'], $to);
        echo json_encode([$is, $moved, $file['name'], $file['type'], $file['size'], $file['error'],
            sha1_file($to), $_POST['title']]);
        unlink($to);"#;
    for php in ALL {
        let site = Site::new().php("up.php", CODE).run_by(php);
        let temporary = site.writable("tmp").display().to_string();
        let server = site
            .ini("sys_temp_dir", &temporary)
            .ini("upload_tmp_dir", &temporary)
            .start();
        let mut body =
            b"--B\r\nContent-Disposition: form-data; name=\"title\"\r\n\r\nMy r\xc3\xa9sum\xc3\xa9\r\n--B\r\n".to_vec();
        body.extend_from_slice(
            b"Content-Disposition: form-data; name=\"doc\"; filename=\"a.bin\"\r\nContent-Type: x/y\r\n\r\n",
        );
        body.extend_from_slice(&[0, 1, 2, 255].repeat(100_000));
        body.extend_from_slice(b"\r\n--B--\r\n");
        let request = Request::post("/up.php", body).with("Content-Type", "multipart/form-data; boundary=B");
        let seen: Value = serde_json::from_str(&server.ask(&request).expect(200).text()).expect("JSON");
        let expected = serde_json::json!([
            true,
            true,
            "a.bin",
            "x/y",
            400_000,
            0,
            "e788d81523f3b79f062863951fe8d2b3d641f0af",
            "My résumé"
        ]);
        assert_eq!(seen, expected, "by {php:?}");
    }
}

#[test]
fn a_session_lives_in_its_cookie() {
    for php in ALL {
        let code = "session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; echo $_SESSION['n'];";
        let server = Site::new().php("count.php", code).run_by(php).start();
        let (mut one, mut other) = (Browser::new(server.address()), Browser::new(server.address()));
        for visit in 1..=5 {
            assert_eq!(
                one.get("/count.php").expect(200).text(),
                visit.to_string(),
                "by {php:?}"
            );
        }
        assert_eq!(other.get("/count.php").expect(200).text(), "1");
    }
}

#[test]
fn authorization_reaches_php() {
    let code = "echo $_SERVER['PHP_AUTH_USER'] ?? '-', ':', $_SERVER['PHP_AUTH_PW'] ?? '-', ' ', $_SERVER['HTTP_AUTHORIZATION'] ?? '-';";
    for php in ALL {
        let server = Site::new().php("who.php", code).run_by(php).start();
        let basic = server.ask(&Request::get("/who.php").with("Authorization", "Basic YW5uYTpzM2NyZXQ="));
        assert!(basic.expect(200).text().starts_with("anna:s3cret"), "by {php:?}");
        let bearer = server.ask(&Request::get("/who.php").with("Authorization", "Bearer abc.def"));
        assert_eq!(bearer.expect(200).text(), "-:- Bearer abc.def", "by {php:?}");
    }
}

#[test]
fn fields_a_client_must_not_set_never_arrive() {
    for php in ALL {
        let server = show().run_by(php).start();
        let request = Request::get("/show.php")
            .with("Proxy", "http://evil.example/")
            .with("X_Auth", "admin")
            .with("Remote_User", "admin")
            .with("PHP_VALUE", "auto_prepend_file=/etc/passwd")
            .with("PHP-VALUE", "auto_prepend_file=/etc/passwd")
            .with("SCRIPT_FILENAME", "/etc/passwd")
            .with("X-Sendfile-Type", "X-Own")
            .with("X-Accel-Mapping", "/=/etc/")
            .with("X-Auth", "guest");
        let seen = shown(&server, &request);
        let vars = &seen["server"];
        assert_eq!(vars["HTTP_X_AUTH"], "guest", "by {php:?}");
        let absent = [
            "HTTP_PROXY",
            "REMOTE_USER",
            "HTTP_REMOTE_USER",
            "PHP_VALUE",
            "HTTP_X_ACCEL_REDIRECT",
        ];
        for name in absent {
            assert!(vars[name].is_null(), "{name} is {} by {php:?}", vars[name]);
        }
        // These we say ourselves: a client's word must not stand beside ours, nor in its place.
        assert_eq!(vars["HTTP_X_SENDFILE_TYPE"], "X-Accel-Redirect", "by {php:?}");
        let mapping = vars["HTTP_X_ACCEL_MAPPING"].as_str().expect("the roots");
        assert!(!mapping.contains("/etc"), "{mapping} by {php:?}");
        assert!(
            vars["SCRIPT_FILENAME"]
                .as_str()
                .is_some_and(|name| name.ends_with("/show.php"))
        );
        let both = shown(&server, &Request::get("/show.php").with("X_Auth", "admin"));
        assert!(
            both["server"]["HTTP_X_AUTH"].is_null(),
            "X_Auth must not pass for X-Auth by {php:?}"
        );
    }
}

#[test]
fn repeated_fields_are_joined() {
    let server = show().start();
    let request = Request::get("/show.php")
        .with("X-List", "a")
        .with("X-List", "b")
        .with("Cookie", "a=1")
        .with("Cookie", "b=2");
    let seen = shown(&server, &request);
    assert_eq!(seen["server"]["HTTP_X_LIST"], "a, b");
    assert_eq!(seen["cookie"]["a"], "1");
    assert_eq!(seen["cookie"]["b"], "2");
}

#[test]
fn a_query_string_never_becomes_arguments() {
    // CVE-2012-1823, CVE-2024-4577.
    let server = Site::new().php("x.php", "/* SOURCE */ echo 'ran';").start();
    for query in [
        "-s",
        "-d+allow_url_include%3d1",
        "%ADs",
        "--version",
        "-n+-s",
        "=PHPB8B5F2A0-3C92-11d3-A3A9-4C7B08C10000",
    ] {
        assert_eq!(
            server.get(&format!("/x.php?{query}")).expect(200).text(),
            "ran",
            "{query}"
        );
    }
}

#[test]
fn ini_and_environment_come_from_the_configuration() {
    let code = "echo ini_get('memory_limit'), ' ', getenv('STAGE'), ' ', var_export(getenv('HOME'), true);";
    let site = Site::new().php("env.php", code).ini("memory_limit", "77M");
    let server = site.config("[pool.php.env]\nSTAGE = \"test bench\"").start();
    assert_eq!(server.get("/env.php").expect(200).text(), "77M test bench false");
}

#[test]
fn a_long_cookie_and_many_fields_pass() {
    let server = show().start();
    let cookie = format!("big={}", "c".repeat(12_000));
    let request = (0..80).fold(Request::get("/show.php").with("Cookie", &cookie), |request, number| {
        request.with(&format!("X-Field-{number}"), &"v".repeat(100))
    });
    let seen = shown(&server, &request);
    assert_eq!(seen["cookie"]["big"].as_str().map(str::len), Some(12_000));
    assert_eq!(seen["server"]["HTTP_X_FIELD_79"], "v".repeat(100));
}
