//! The licences of everything that is built in, as cargo knows them, beside what `deny.toml` allows.

use std::path::Path;
use std::process::Command;

use crate::source::read;

pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) licence: String,
}

/// Every package that is built on this kind of machine, our own aside.
pub(crate) fn packages() -> Vec<Package> {
    let rustc = Command::new("rustc").arg("-vV").current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8(rustc.stdout).unwrap();
    let host = said.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let licence = |package: &serde_json::Value| match package["license"].as_str() {
        Some(expression) => expression.to_owned(),
        None => of_file(&text(&package["manifest_path"]), &text(&package["license_file"])),
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .filter(|package| package["name"] != env!("CARGO_PKG_NAME"))
        .map(|package| Package { name: text(&package["name"]), licence: licence(package) })
        .collect()
}

/// A package may name a file instead of an expression. The text of the one licence that is met this way
/// begins with its name.
fn of_file(manifest: &str, file: &str) -> String {
    let path = Path::new(manifest).with_file_name(file);
    let begins = std::fs::read_to_string(path).unwrap_or_default();
    if begins.trim_start().starts_with("MIT License") { "MIT".to_owned() } else { String::new() }
}

/// The list `allow` of `deny.toml`'s section on licences.
pub(crate) fn allowed() -> Vec<String> {
    let text = read("deny.toml");
    let section = text.split("[licenses]").nth(1).unwrap();
    let list = section.split("allow = [").nth(1).unwrap().split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether an SPDX expression can be met with allowed licences alone.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let fits = either(&tokens, &mut at, allowed);
    fits && at == tokens.len()
}

fn either(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fits = both(tokens, at, allowed);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        fits |= both(tokens, at, allowed);
    }
    fits
}

fn both(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let mut fits = one(tokens, at, allowed);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        fits &= one(tokens, at, allowed);
    }
    fits
}

fn one(tokens: &[&str], at: &mut usize, allowed: &[String]) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token == "(" {
        let fits = either(tokens, at, allowed);
        *at += 1;
        return fits;
    }
    if tokens.get(*at) == Some(&"WITH") {
        // An exception only ever gives more than the licence before it.
        *at += 2;
    }
    allowed.iter().any(|licence| licence == token)
}
