//! The table of known applications, as data.
//!
//! Paths and patterns are those of the document root, with a leading `/`; a pattern's `*` stands for any characters,
//! `/` too. Dotfiles, backups and the manifests of composer and npm are refused by the server for every site.

/// One layout of a project on disk.
#[derive(Debug)]
pub(crate) struct Layout {
    /// All of these exist below the project directory. A `*` at the end stands for the rest of a name.
    pub(crate) markers: &'static [&'static str],
    /// The document root below the project directory; `.` is the directory itself.
    pub(crate) root: &'static str,
    /// The front controller, in the document root.
    pub(crate) front: Option<&'static str>,
}

/// Rules for one application.
#[derive(Debug)]
pub(crate) struct Preset {
    /// The word for `app = "…"`.
    pub(crate) name: &'static str,
    /// The name shown to people.
    pub(crate) title: &'static str,
    /// Tried in order.
    pub(crate) layouts: &'static [Layout],
    /// Detected by its files; otherwise used only if named.
    pub(crate) detected: bool,
    /// True if PHP runs at all.
    pub(crate) php: bool,
    /// Files that answer for a directory, in order.
    pub(crate) index: &'static [&'static str],
    /// The only scripts that run; all of them if empty.
    pub(crate) scripts: &'static [&'static str],
    /// Scripts that never run.
    pub(crate) never: &'static [&'static str],
    /// Paths that are refused.
    pub(crate) deny: &'static [&'static str],
    /// Pattern → the value that `cache` would have.
    pub(crate) cache: &'static [(&'static str, &'static str)],
    /// Path → target of a redirect (301), after those of the site itself.
    pub(crate) redirects: &'static [(&'static str, &'static str)],
    /// A remark for the start message.
    pub(crate) remark: Option<&'static str>,
}

const NOTHING: Preset = Preset {
    name: "",
    title: "",
    layouts: &[],
    detected: true,
    php: true,
    index: &["index.php", "index.html"],
    scripts: &[],
    never: &[],
    deny: &[],
    cache: &[],
    redirects: &[],
    remark: None,
};

const fn layout(markers: &'static [&'static str], root: &'static str, front: &'static str) -> Layout {
    Layout {
        markers,
        root,
        front: Some(front),
    }
}

/// Refused by Drupal's own .htaccess.
const DRUPAL_SOURCE: &[&str] = &[
    "*.{engine,inc,install,make,module,profile,po,theme,twig,yml,sql}",
    "*.tpl.php",
];

const DRUPAL: Preset = Preset {
    scripts: &[
        "/index.php",
        "/update.php",
        "/install.php",
        "/authorize.php",
        "/cron.php",
        "/xmlrpc.php",
        "/core/install.php",
        "/core/authorize.php",
        "/core/rebuild.php",
    ],
    never: &["/sites/*/files/*.php"],
    deny: DRUPAL_SOURCE,
    remark: Some("sites/*/files never runs PHP"),
    ..NOTHING
};

/// Refused by the nginx configuration in Nextcloud's documentation; ownCloud has the same layout.
const CLOUD: Preset = Preset {
    layouts: &[layout(&["occ", "remote.php"], ".", "/index.php")],
    scripts: &[
        "/{cron,index,public,remote,status}.php",
        "/core/ajax/update.php",
        "/ocs/v{1,2}.php",
        "/ocs-provider/*.php",
        "/ocm-provider/*.php",
        "/updater/*.php",
        "/apps/*/proxy.php",
    ],
    never: &["/data/*.php"],
    deny: &[
        "/{3rdparty,build,config,data,lib,templates,tests}/*",
        "/{autotest,console,db_,indie,issue,occ}*",
    ],
    // RFC 6764 §5. The other well-known paths are answered by the front controller.
    redirects: &[
        ("/.well-known/carddav", "/remote.php/dav/"),
        ("/.well-known/caldav", "/remote.php/dav/"),
    ],
    remark: Some("config and data never leave"),
    ..NOTHING
};

/// All applications, in the order they are looked for.
pub(crate) static PRESETS: &[Preset] = &[
    Preset {
        name: "laravel",
        title: "Laravel",
        layouts: &[layout(&["public/index.php", "artisan"], "public", "/index.php")],
        scripts: &["/index.php"],
        cache: &[("/build/assets/*", "1y immutable")],
        ..NOTHING
    },
    Preset {
        name: "symfony",
        title: "Symfony",
        layouts: &[
            layout(&["public/index.php", "src/Kernel.php"], "public", "/index.php"),
            layout(&["web/app.php", "app/AppKernel.php"], "web", "/app.php"),
        ],
        scripts: &["/index.php", "/app.php"],
        // Encore writes eight hexadecimal digits before the extension of what it versions.
        cache: &[(
            "/build/*.????????.{css,js,png,jpg,jpeg,gif,svg,webp,avif,woff,woff2}",
            "1y immutable",
        )],
        ..NOTHING
    },
    Preset {
        name: "bedrock",
        title: "Bedrock",
        layouts: &[layout(
            &["web/wp-config.php", "config/application.php", "web/app/"],
            "web",
            "/index.php",
        )],
        never: &["/app/uploads/*.php"],
        remark: Some("app/uploads never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "wordpress",
        title: "WordPress",
        layouts: &[
            layout(&["wp-config.php"], ".", "/index.php"),
            layout(&["wp-config-sample.php"], ".", "/index.php"),
        ],
        never: &["/wp-content/uploads/*.php"],
        deny: &["/wp-content/debug.log"],
        remark: Some("uploads never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "drupal",
        title: "Drupal",
        layouts: &[
            layout(&["core/lib/Drupal.php"], ".", "/index.php"),
            layout(&["web/core/lib/Drupal.php"], "web", "/index.php"),
            layout(&["docroot/core/lib/Drupal.php"], "docroot", "/index.php"),
            layout(&["misc/drupal.js"], ".", "/index.php"),
            layout(&["web/misc/drupal.js"], "web", "/index.php"),
            layout(&["docroot/misc/drupal.js"], "docroot", "/index.php"),
        ],
        ..DRUPAL
    },
    Preset {
        name: "magento2",
        title: "Magento 2",
        layouts: &[layout(&["bin/magento", "pub/index.php"], "pub", "/index.php")],
        scripts: &[
            "/index.php",
            "/get.php",
            "/static.php",
            "/health_check.php",
            "/errors/*.php",
        ],
        never: &["/media/*.php"],
        remark: Some("media never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "typo3",
        title: "TYPO3",
        layouts: &[
            layout(&["public/typo3/"], "public", "/index.php"),
            layout(&["public/typo3conf/"], "public", "/index.php"),
            layout(&["typo3/"], ".", "/index.php"),
        ],
        scripts: &["/index.php", "/typo3/*.php"],
        never: &["/fileadmin/*.php"],
        remark: Some("fileadmin never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "joomla",
        title: "Joomla",
        layouts: &[
            layout(&["libraries/src/", "configuration.php*"], ".", "/index.php"),
            layout(&["libraries/joomla/", "configuration.php*"], ".", "/index.php"),
            layout(
                &["libraries/src/", "installation/configuration.php*"],
                ".",
                "/index.php",
            ),
        ],
        scripts: &[
            "/index.php",
            "/administrator/index.php",
            "/api/index.php",
            "/installation/index.php",
        ],
        never: &["/images/*.php"],
        remark: Some("images never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "cakephp",
        title: "CakePHP",
        layouts: &[layout(&["bin/cake", "webroot/index.php"], "webroot", "/index.php")],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "craft",
        title: "Craft CMS",
        layouts: &[
            layout(&["craft", "web/index.php"], "web", "/index.php"),
            layout(&["craft", "public/index.php"], "public", "/index.php"),
        ],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "contao",
        title: "Contao",
        layouts: &[
            layout(&["vendor/contao/", "public/index.php"], "public", "/index.php"),
            layout(&["vendor/contao/", "web/index.php"], "web", "/index.php"),
        ],
        scripts: &["/index.php", "/preview.php", "/contao-manager.phar.php"],
        ..NOTHING
    },
    Preset {
        name: "kirby",
        title: "Kirby",
        layouts: &[
            layout(&["kirby/bootstrap.php", "public/index.php"], "public", "/index.php"),
            layout(&["kirby/bootstrap.php", "index.php"], ".", "/index.php"),
        ],
        scripts: &["/index.php"],
        deny: &["/{content,kirby,site}/*"],
        ..NOTHING
    },
    Preset {
        name: "neos",
        title: "Neos",
        layouts: &[layout(&["flow", "Web/index.php"], "Web", "/index.php")],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "nette",
        title: "Nette",
        layouts: &[
            layout(&["app/Bootstrap.php", "www/index.php"], "www", "/index.php"),
            layout(&["app/bootstrap.php", "www/index.php"], "www", "/index.php"),
        ],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "yii2",
        title: "Yii",
        layouts: &[
            layout(&["yii", "web/index.php"], "web", "/index.php"),
            layout(&["yii", "frontend/web/index.php"], "frontend/web", "/index.php"),
        ],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "codeigniter",
        title: "CodeIgniter",
        layouts: &[layout(&["spark", "public/index.php"], "public", "/index.php")],
        scripts: &["/index.php"],
        ..NOTHING
    },
    Preset {
        name: "october",
        title: "October CMS",
        layouts: &[layout(&["artisan", "modules/system/", "index.php"], ".", "/index.php")],
        scripts: &["/index.php"],
        deny: &[
            "/{bootstrap,config,tests,vendor}/*",
            "/storage/{cms,framework,logs}/*",
            "/themes/*.{htm,txt,yaml}",
            "/artisan",
        ],
        ..NOTHING
    },
    Preset {
        name: "concrete",
        title: "Concrete CMS",
        layouts: &[
            layout(&["concrete/dispatcher.php", "index.php"], ".", "/index.php"),
            layout(
                &["public/concrete/dispatcher.php", "public/index.php"],
                "public",
                "/index.php",
            ),
        ],
        scripts: &["/index.php"],
        deny: &["/application/config/*"],
        ..NOTHING
    },
    Preset {
        name: "nextcloud",
        title: "Nextcloud",
        ..CLOUD
    },
    Preset {
        name: "owncloud",
        title: "ownCloud",
        detected: false,
        ..CLOUD
    },
    Preset {
        name: "mediawiki",
        title: "MediaWiki",
        // No front controller: pages are named in the query, or by a rewrite.
        layouts: &[Layout {
            markers: &["includes/WebStart.php", "load.php"],
            root: ".",
            front: None,
        }],
        scripts: &[
            "/{api,img_auth,index,load,opensearch_desc,rest,thumb,thumb_handler}.php",
            "/mw-config/index.php",
        ],
        deny: &[
            "/{cache,docs,includes,languages,maintenance,serialized,sql,tests,vendor}/*",
            "/images/deleted/*",
        ],
        remark: Some("images never runs PHP"),
        ..NOTHING
    },
    Preset {
        name: "dokuwiki",
        title: "DokuWiki",
        layouts: &[Layout {
            markers: &["doku.php", "lib/exe/"],
            root: ".",
            front: None,
        }],
        scripts: &["/{doku,feed,index,install}.php", "/lib/exe/*.php", "/lib/plugins/*.php"],
        deny: &["/{bin,conf,data,inc,vendor}/*"],
        remark: Some("conf and data never leave"),
        ..NOTHING
    },
    Preset {
        name: "shaarli",
        title: "Shaarli",
        layouts: &[layout(&["shaarli_version.php", "index.php"], ".", "/index.php")],
        scripts: &["/index.php"],
        deny: &["/{application,data,pagecache,tests,tmp,vendor}/*"],
        ..NOTHING
    },
    Preset {
        name: "front",
        title: "PHP",
        layouts: &[
            layout(&["public/index.php"], "public", "/index.php"),
            layout(&["index.php"], ".", "/index.php"),
        ],
        detected: false,
        ..NOTHING
    },
    Preset {
        name: "plain",
        title: "PHP files",
        layouts: &[
            Layout {
                markers: &["public/index.php"],
                root: "public",
                front: None,
            },
            // A script that stays booted (worker mode).
            Layout {
                markers: &["public/worker.php"],
                root: "public",
                front: None,
            },
            Layout {
                markers: &[],
                root: ".",
                front: None,
            },
        ],
        detected: false,
        index: &["index.html", "index.php"],
        ..NOTHING
    },
    Preset {
        name: "static",
        title: "Static files",
        layouts: &[
            Layout {
                markers: &["public/index.html"],
                root: "public",
                front: None,
            },
            Layout {
                markers: &["dist/index.html"],
                root: "dist",
                front: None,
            },
            Layout {
                markers: &[],
                root: ".",
                front: None,
            },
        ],
        detected: false,
        php: false,
        index: &["index.html"],
        // A script that is not run would be sent as text.
        deny: &["*.{php,phtml,phar}"],
        ..NOTHING
    },
];
