//! A PHP of a version that haulier was not built for.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::program::{folder, haulier};

/// The installed php-cgi, which calls itself 7.4.33 where it is asked for its version.
const OTHER: &str = "#!/bin/sh
[ \"$1\" = -q ] || exec /usr/bin/php-cgi \"$@\"
/usr/bin/php-cgi \"$@\" | sed '2s/.*/7.4.33/'
";

#[test]
fn a_php_that_haulier_was_not_built_for_is_named_with_the_one_that_it_was() {
    for (run, code) in [("embed", 2), ("auto", 0)] {
        let text = format!(
            "[server]\nhttp = \"127.0.0.1:0\"\n[pool.php]\nphp = \"./php-cgi\"\nrun = {run:?}\n[site.a]\nroot = \".\"\napp = \"plain\"\n"
        );
        let place = folder(&[("haulier.toml", &text), ("index.php", ""), ("php-cgi", OTHER)]);
        let program = place.path().join("php-cgi");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).expect("the folder is ours");
        let said = haulier(place.path(), &["check"]);
        assert_eq!(said.code, Some(code), "{run}: {}{}", said.stdout, said.stderr);
        // Such as 8.2 or 8.4: every haulier under test was built for the PHP of its machine.
        let words = "this haulier was built for PHP 8.";
        assert!(said.stdout.contains(words), "{run}: {}", said.stdout);
        assert!(said.stdout.contains("this PHP is 7.4;"), "{run}: {}", said.stdout);
    }
}
