//! `[pool.NAME]` and the tables below it.

use haulier_settings::settings_table;

/// PHP does not start with less.
const LEAST_MEMORY: u64 = 16 << 20;

settings_table! {
    /// `[pool.NAME]`
    pub(crate) struct PoolTable = "pool.NAME";

    /// PHP processes of the whole pool: a number, or `{ min, max, idle, spawn_rate }`.
    workers: TableOr(WorkersTable, max, 1, "a pool needs one PHP process") else "max(4, 2 × cores), less on a small machine";
    /// `[pool.NAME.recycle]`: when a worker is replaced, always between two requests.
    recycle: Table(RecycleTable) = {};
    /// Short for `requests` of `recycle`; 0 is never.
    max_requests: Count(0, "0 is no limit") = 1000;
    /// The php-cgi program; `auto` takes the newest one found.
    php: Path = "auto";
    /// php.ini settings of this pool.
    ini: Pairs = {};
    /// The same, but neither a script nor a .user.ini can change them.
    ini_admin: Pairs = {};
    /// Environment variables PHP sees.
    env: Pairs = {};
    /// Variables copied from haulier's own environment.
    env_copy: Texts = ["PATH", "TZ", "LANG"];
    /// The account PHP runs as.
    user: Text else "\"www-data\" when started as root";
    /// The group PHP runs as.
    group: Text else "the account's own";
    /// How much less PHP gets of a busy processor, up to 19; below 0 more, as root.
    nice: Niceness = 0;
    /// `[pool.NAME.rlimits]`: what the system allows each PHP process.
    rlimits: Table(RlimitsTable) = {};
    /// Running FastCGI servers instead: `host:port` or `unix:/path`.
    servers: Texts else "none: haulier runs PHP";
    /// Which server gets a request: `least_busy`, or `hash:cookie` (PHPSESSID) or `hash:cookie:NAME` for the same one.
    balance: Text = "least_busy";
    /// Requests to each server at a time: its pm.max_children; one less with `keep_conn` or `health`.
    connections: Count(1, "PHP is reached over connections") = 32;
    /// The document root as those servers see it.
    remote_root: Text else "the site's document root";
    /// Longest time to connect to a server.
    connect_timeout: Deadline = "1s";
    /// Keep connections for further requests, where no script calls fastcgi_finish_request().
    keep_conn: Flag = false;
    /// With `keep_conn`, an idle connection to a server is closed after this long.
    idle_timeout: Deadline = "5s";
    /// `[pool.NAME.health]`: whether servers are well, by php-fpm's ping.
    health: Table(HealthTable) else "none: by refused connections";
    /// Longest time to the response head; then 504.
    timeout: Deadline = "60s";
    /// Longest silence of PHP in a response body; event streams have none.
    body_timeout: Deadline else "as `timeout`";
    /// Longest wait for a free worker; then 503 with Retry-After.
    queue: Duration = "10s";
    /// Most waiting requests; one more gets 503 at once.
    queue_length: Count(0, "0 lets nobody wait") = 512;
    /// How long running requests may go on when the pool is to end, if shorter.
    grace: Duration else "as in `[server]`";
    /// `[pool.NAME.slow]`: a line about each request that takes long.
    slow: Table(SlowTable) else "none";
}

settings_table! {
    /// `[pool.NAME.workers]`
    pub(crate) struct WorkersTable = "pool.NAME.workers";

    /// Workers that keep their memory however long they have nothing to do; 0 ends PHP until the next request.
    min: Count(0, "0 ends PHP when nobody asks for it") = 1;
    /// PHP processes that may work at a time.
    max: Count(1, "a pool needs one PHP process") else "max(4, 2 × cores), less on a small machine";
    /// The others give theirs back after this long.
    idle: Deadline = "10s";
    /// Most workers put to work within a second; other requests wait for those at work.
    spawn_rate: Count(1, "without any no request is answered") else "no limit";
}

settings_table! {
    /// `[pool.NAME.recycle]`
    pub(crate) struct RecycleTable = "pool.NAME.recycle";

    /// After this many requests; 0 is never.
    requests: Count(0, "0 is no limit") = 1000;
    /// When its own memory is more than this after a request.
    memory: Size(LEAST_MEMORY) else "never";
    /// This long after its first request.
    age: Deadline else "never";
}

settings_table! {
    /// `[pool.NAME.rlimits]`
    pub(crate) struct RlimitsTable = "pool.NAME.rlimits";

    /// Open files and connections of each process.
    files: Count(16, "PHP opens more than that") else "as haulier's";
    /// Processes of the account PHP runs as, all together.
    processes: Count(1, "PHP is one already") else "as haulier's";
    /// Address space of each process; keep it well above memory_limit.
    memory: Size(LEAST_MEMORY) else "as haulier's";
    /// Longest file a script may write.
    file_size: Size(0) else "as haulier's";
    /// Longest core dump.
    core: Size(0) else "as haulier's";
}

settings_table! {
    /// `[pool.NAME.health]`
    pub(crate) struct HealthTable = "pool.NAME.health";

    /// The `ping.path` of the php-fpm pools.
    path: Text else "required";
    /// Their `pm.status_path`: how busy they are with the requests of others, asked with every ping.
    status: Text else "none";
    /// Time between two pings, and the longest time for an answer.
    every: Deadline = "5s";
    /// Failures in a row that take a server out; a refused connection does at once.
    fail: Count(1, "a server cannot be out without a failure") = 3;
    /// Answers in a row that take it in again.
    recover: Count(1, "a server cannot be back without an answer") = 2;
}

settings_table! {
    /// `[pool.NAME.slow]`
    pub(crate) struct SlowTable = "pool.NAME.slow";

    /// How long a request may keep its worker without a line about it.
    after: Deadline = "5s";
    /// A file for these lines, one JSON object each.
    log: Path else "the server's log";
}
