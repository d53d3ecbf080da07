//! The rules of the house, as tests over the source text: where SQL, the queue, the web and the environment
//! may be spoken of, which room may use which, how long a file may grow, what licences the dependencies
//! may have. Each rule is shown a breach of itself as well, so that none passes by seeing nothing.

#[path = "tidy/licences.rs"]
mod licences;
#[path = "tidy/source.rs"]
mod source;

use source::{File, files, words};

/// Breaches, one line each; empty is tidy.
type Breaches = Vec<String>;

fn tidy(rule: fn(&File) -> Breaches, below: &[&str], breach: (&str, &str)) {
    let shown = rule(&File::new(breach.0, breach.1));
    assert!(!shown.is_empty(), "this rule does not see a breach of itself: {}", breach.1);
    let found: Breaches = files(below).iter().flat_map(rule).collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

const PRODUCT: &[&str] = &["src", "workers"];
const ALL: &[&str] = &["src", "workers", "tests", "build.rs"];

#[test]
fn only_files_called_sql_hold_sql() {
    fn rule(file: &File) -> Breaches {
        // `migrate!` names files that hold SQL.
        let asks = ["sqlx::query", "raw_sql", "QueryBuilder", "AssertSqlSafe", "use sqlx::query"];
        if file.name() == "sql.rs" { Vec::new() } else { file.lines_of_code_with(&asks) }
    }
    tidy(rule, PRODUCT, ("src/orders/place.rs", "fn f() { sqlx::query!(\"select 1\"); }"));
}

#[test]
fn sql_keywords_are_lower_case() {
    const KEYWORDS: [&str; 18] = [
        "SELECT",
        "INSERT",
        "UPDATE",
        "DELETE",
        "FROM",
        "WHERE",
        "JOIN",
        "VALUES",
        "RETURNING",
        "GROUP",
        "ORDER",
        "LIMIT",
        "CREATE",
        "ALTER",
        "DROP",
        "BEGIN",
        "COMMIT",
        "EXISTS",
    ];
    fn rule(file: &File) -> Breaches {
        let text = if file.path.ends_with(".sql") { &file.text } else { &file.strings };
        let shouts = |line: &&str| {
            // Comments may name things as they please, and what stands in quotes is a value.
            let statement = line.split("--").next().unwrap_or_default();
            let outside_quotes = statement.split('\'').step_by(2);
            outside_quotes.flat_map(words).any(|word| KEYWORDS.contains(&word))
        };
        file.numbered(text).filter(|(_, line)| shouts(line)).map(|(n, line)| file.at(n, line)).collect()
    }
    tidy(rule, &["migrations"], ("migrations/0001_a.sql", "CREATE table a ();"));
    fn in_rust(file: &File) -> Breaches {
        if file.name() == "sql.rs" { rule(file) } else { Vec::new() }
    }
    tidy(in_rust, PRODUCT, ("src/a/sql.rs", "fn f() { query!(\"SELECT 1\"); }"));
}

#[test]
fn only_the_queue_and_the_workers_speak_of_apalis() {
    fn rule(file: &File) -> Breaches {
        // The bench compares our queue with apalis as it comes.
        let may = ["src/queue", "src/bench/baselines", "workers"];
        if file.is_below(&may) { Vec::new() } else { file.lines_of_code_with(&["apalis"]) }
    }
    tidy(rule, PRODUCT, ("src/sweep/mod.rs", "use apalis::prelude::*;"));
}

#[test]
fn only_the_web_and_the_workers_speak_of_axum() {
    fn rule(file: &File) -> Breaches {
        if file.is_below(&["src/web", "workers"]) {
            Vec::new()
        } else {
            file.lines_of_code_with(&["axum", "tower_http"])
        }
    }
    tidy(rule, PRODUCT, ("src/orders/mod.rs", "use axum::Json;"));
}

#[test]
fn only_the_settings_read_the_environment_and_in_tests_only_the_support() {
    fn rule(file: &File) -> Breaches {
        // `env!` is read by the compiler, not by the program.
        let reads = ["std::env", "env::var", "env::temp_dir", "dotenv", "(env =", ", env ="];
        if file.is_below(&["src/config.rs", "tests/support"]) { Vec::new() } else { file.lines_of_code_with(&reads) }
    }
    tidy(rule, ALL, ("src/web/mod.rs", "fn f() { std::env::var(\"PORT\").ok(); }"));
}

#[test]
fn nothing_imports_the_workers() {
    fn rule(file: &File) -> Breaches {
        let mut found = file.lines_of_code_with(&["workers::"]);
        found.extend(file.numbered(&file.strings).filter(|(_, l)| l.contains("workers/")).map(|(n, l)| file.at(n, l)));
        found
    }
    tidy(rule, &["src"], ("src/lib.rs", "#[path = \"../workers/web.rs\"] mod web;"));
}

/// Which rooms each room may use. What stands here is the direction of dependencies: a room may use only
/// rooms that stand above it.
const ROOMS: &[(&str, &[&str])] = &[
    ("body", &[]),
    ("config", &[]),
    ("db", &[]),
    ("queue", &["db"]),
    ("traces", &[]),
    ("shops", &["db"]),
    ("stock", &["body", "db"]),
    ("reservations", &["db", "stock"]),
    ("payments", &["db", "queue"]),
    // Who ends an order, by whatever way, hands what it kept to those who wait for it: `allocator::waiting`.
    ("allocator", &["db", "queue", "reservations", "stock"]),
    ("orders", &["allocator", "body", "db", "queue", "reservations", "stock"]),
    // A payment is judged by where its order stands: one enum for it, `orders::Status`. Late money holds anew, and
    // what was withdrawn is replaced, by the allocator's own search.
    ("convert", &["allocator", "db", "orders", "payments", "queue", "reservations"]),
    ("sweep", &["allocator", "db", "queue", "reservations", "stock"]),
    ("courier", &["db", "traces"]),
    ("ops", &["db", "queue"]),
    (
        "web",
        &[
            "allocator",
            "body",
            "config",
            "courier",
            "db",
            "ops",
            "orders",
            "payments",
            "queue",
            "shops",
            "stock",
            "traces",
        ],
    ),
    // It measures what they do without the jobs around it.
    ("bench", &["allocator", "convert", "db", "orders", "queue", "shops", "stock", "sweep"]),
    ("demo", &["courier", "db", "ops", "queue"]),
];

#[test]
fn dependencies_between_rooms_point_one_way() {
    fn rule(file: &File) -> Breaches {
        let Some(room) = file.room() else { return Vec::new() };
        let Some((_, may)) = ROOMS.iter().find(|(name, _)| *name == room) else {
            return vec![format!("{}: the room `{room}` is not in the table of rooms", file.path)];
        };
        let outside = |(n, used): (usize, String)| {
            let allowed = used == room || may.contains(&used.as_str());
            (!allowed).then(|| format!("{}:{n}: `{room}` may not use `{used}`", file.path))
        };
        file.rooms_used().into_iter().filter_map(outside).collect()
    }
    for (at, (room, may)) in ROOMS.iter().enumerate() {
        let above = |used: &&str| ROOMS[..at].iter().any(|(name, _)| name == used);
        assert!(may.iter().all(above), "`{room}` may only use rooms that stand above it");
    }
    tidy(rule, &["src"], ("src/stock/mod.rs", "use crate::{db, allocator::run};"));
    tidy(rule, &["src"], ("src/unheard/mod.rs", ""));
    // Of the queue, the rooms of the business know the catalogue of jobs and no more.
    fn catalogue_only(file: &File) -> Breaches {
        let business = ["allocator", "convert", "orders", "payments", "sweep", "stock", "reservations", "shops"];
        let business = file.room().is_some_and(|room| business.contains(&room.as_str()));
        let beyond = |line: &&str| line.contains("crate::queue") && !line.contains("crate::queue::catalogue");
        if !business {
            return Vec::new();
        }
        file.numbered(&file.code).filter(|(_, line)| beyond(line)).map(|(n, line)| file.at(n, line)).collect()
    }
    tidy(catalogue_only, &["src"], ("src/orders/mod.rs", "use crate::queue::backend;"));
}

#[test]
fn no_room_uses_another_rooms_sql() {
    fn rule(file: &File) -> Breaches {
        let foreign = |line: &&str| {
            let mut parts = line.split("crate::").skip(1);
            parts.any(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').nth(2) == Some("sql"))
        };
        let public = |line: &&str| line.contains("pub mod sql") || line.contains("pub(crate) mod sql");
        let breach = |line: &&str| foreign(line) || public(line);
        file.numbered(&file.code).filter(|(_, line)| breach(line)).map(|(n, line)| file.at(n, line)).collect()
    }
    tidy(rule, &["src"], ("src/orders/mod.rs", "use crate::stock::sql::lock;"));
    tidy(rule, &["src"], ("src/orders/mod.rs", "pub(crate) mod sql;"));
}

#[test]
fn files_and_functions_stay_short() {
    const LONGEST_FILE: usize = 400;
    const LONGEST_FUNCTION: usize = 70;
    fn rule(file: &File) -> Breaches {
        let mut found = Vec::new();
        let lines = file.text.lines().count();
        if lines > LONGEST_FILE {
            found.push(format!("{}: {lines} lines, {LONGEST_FILE} are the most", file.path));
        }
        for (line, name, length) in file.functions() {
            if length > LONGEST_FUNCTION {
                found.push(format!("{}:{line}: fn {name}: {length} lines, {LONGEST_FUNCTION} are the most", file.path));
            }
        }
        found
    }
    tidy(rule, ALL, ("src/a.rs", &"\n".repeat(401)));
    tidy(rule, ALL, ("src/a.rs", &format!("fn f() {{\n{}}}\n", "g(\"}\"); // }\n".repeat(70))));
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_switched_off() {
    fn rule(file: &File) -> Breaches {
        let mut found = file.lines_of_code_with(&["todo!", "unimplemented!", "dbg!", "#[ignore", "should_panic"]);
        let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
        let marked = |line: &&str| words(line).any(|word| marks.contains(&word));
        found.extend(file.numbered(&file.text).filter(|(_, line)| marked(line)).map(|(n, line)| file.at(n, line)));
        found
    }
    tidy(rule, ALL, ("tests/a.rs", "#[ignore]\nfn f() {}"));
}

#[test]
fn every_migration_says_why_and_whether_the_previous_release_survives_it() {
    fn rule(file: &File) -> Breaches {
        let opening: Vec<&str> = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        let why = opening.first().is_some_and(|line| line.starts_with("-- Why: "));
        let previous = opening.iter().any(|line| line.starts_with("-- Previous release: "));
        let says = [("-- Why: ", why), ("-- Previous release: ", previous)];
        says.iter().filter(|(_, said)| !said).map(|(what, _)| format!("{}: no `{what}`", file.path)).collect()
    }
    tidy(rule, &["migrations"], ("migrations/0001_a.sql", "-- Why: because\ncreate table a ();"));
    tidy(rule, &["migrations"], ("migrations/0001_a.sql", "-- Previous release: yes\ncreate table a ();"));
    let mut names: Vec<String> = files(&["migrations"]).iter().map(|file| file.name().to_owned()).collect();
    names.sort();
    for (n, name) in (1..).zip(&names) {
        assert!(name.starts_with(&format!("{n:04}_")), "{name}: migrations are numbered without gaps");
    }
}

#[test]
fn the_business_speaks_in_the_contracts_words() {
    fn rule(file: &File) -> Breaches {
        let rooms = ["allocator", "convert", "orders", "payments", "reservations", "sweep", "stock"];
        if !file.room().is_some_and(|room| rooms.contains(&room.as_str())) {
            return Vec::new();
        }
        // A hold is converted, and nothing else.
        let foreign = ["claim", "claims", "claimed", "capture", "captures", "captured"];
        let strange = |line: &&str| words(line).any(|word| foreign.contains(&word.to_lowercase().as_str()));
        file.numbered(&file.text).filter(|(_, line)| strange(line)).map(|(n, line)| file.at(n, line)).collect()
    }
    tidy(rule, &["src"], ("src/convert/mod.rs", "// Claims the asset."));
}

#[test]
fn no_file_knows_where_on_a_developers_machine_it_stood() {
    fn rule(file: &File) -> Breaches {
        let homes = ["root", "home", "Users", "work"].map(|folder| format!("/{folder}/"));
        let tells = |line: &&str| homes.iter().any(|home| line.contains(home.as_str()));
        if file.path == "tests/tidy.rs" {
            return Vec::new();
        }
        file.numbered(&file.text).filter(|(_, line)| tells(line)).map(|(n, line)| file.at(n, line)).collect()
    }
    let everything = [ALL, &["migrations", "bin", ".ci", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"]].concat();
    tidy(rule, &everything, ("src/a.rs", "// see /home/me/notes"));
}

#[test]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let allowed = licences::allowed();
    let packages = licences::packages();
    assert!(packages.len() > 100, "the list of dependencies is not whole: {}", packages.len());
    let found: Breaches = packages
        .iter()
        .filter(|package| !licences::is_allowed(&package.licence, &allowed))
        .map(|package| format!("{}: {:?}", package.name, package.licence))
        .collect();
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
    for (licence, fits) in [
        ("MIT OR Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("MIT/Apache-2.0", true),
        ("MIT AND GPL-3.0", false),
        ("GPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(licences::is_allowed(licence, &allowed), fits, "{licence}");
    }
}
