//! Reads both forms of connection strings. Messages name keys, never values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::{ConnInfo, SslMode};

/// Reads a connection string.
pub(super) fn parse(text: &str) -> Result<ConnInfo, String> {
    let text = text.trim();
    let settings = match text
        .strip_prefix("postgresql://")
        .or_else(|| text.strip_prefix("postgres://"))
    {
        Some(rest) => url(rest)?,
        None => keywords(text)?,
    };
    build(settings)
}

type Settings = BTreeMap<String, String>;

fn url(rest: &str) -> Result<Settings, String> {
    let mut settings = Settings::new();
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (login, host),
        None => ("", authority),
    };
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    let (host, port) = host_and_port(host)?;
    for (key, value) in [
        ("user", user),
        ("password", password),
        ("host", host),
        ("port", port),
        ("dbname", database),
    ] {
        if !value.is_empty() {
            settings.insert(key.to_owned(), percent_decode(key, value)?);
        }
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .ok_or("a parameter after '?' has no '='".to_owned())?;
        settings.insert(percent_decode("parameter", key)?, percent_decode(key, value)?);
    }
    Ok(settings)
}

fn host_and_port(text: &str) -> Result<(&str, &str), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("the IPv6 address has no ']'")?;
        return Ok((host, rest.strip_prefix(':').unwrap_or("")));
    }
    Ok(text.split_once(':').unwrap_or((text, "")))
}

fn percent_decode(key: &str, text: &str) -> Result<String, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) if high + low > 0 => out.push((high * 16 + low) as u8),
            _ => return Err(format!("{key} has a '%' that two hexadecimal digits do not follow")),
        }
    }
    String::from_utf8(out).map_err(|_| format!("{key} is not UTF-8"))
}

fn keywords(text: &str) -> Result<Settings, String> {
    let mut settings = Settings::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(settings);
        }
        let mut key = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            key.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') {
            return Err("a word is not followed by '='; expected key=value or a postgresql:// URL".to_owned());
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let value = keyword_value(&key, &mut chars)?;
        settings.insert(key, value);
    }
}

fn keyword_value(key: &str, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<String, String> {
    let quoted = chars.next_if_eq(&'\'').is_some();
    let mut value = String::new();
    loop {
        match chars.peek() {
            None if quoted => return Err(format!("{key} has no closing quote")),
            None => return Ok(value),
            Some('\'') if quoted => {
                chars.next();
                return Ok(value);
            }
            Some(c) if !quoted && c.is_whitespace() => return Ok(value),
            Some('\\') => {
                chars.next();
                value.extend(chars.next());
            }
            Some(_) => value.extend(chars.next()),
        }
    }
}

fn build(mut settings: Settings) -> Result<ConnInfo, String> {
    let mut take = |key: &str| settings.remove(key).filter(|value| !value.is_empty());
    let user = take("user").ok_or("user is missing")?;
    let hostaddr = take("hostaddr");
    let host = take("host")
        .or_else(|| hostaddr.clone())
        .unwrap_or_else(|| "localhost".to_owned());
    if host.contains(',') {
        return Err("host names several servers; a slot lives on one".to_owned());
    }
    let port = match take("port") {
        None => 5432,
        Some(text) => match text.parse::<u16>() {
            Ok(port) if port > 0 => port,
            _ => return Err("port is not a number from 1 to 65535".to_owned()),
        },
    };
    let sslmode = match take("sslmode").as_deref() {
        None | Some("prefer" | "allow") => SslMode::Prefer,
        Some("disable") => SslMode::Disable,
        Some("require") => SslMode::Require,
        Some("verify-ca") => SslMode::VerifyCa,
        Some("verify-full") => SslMode::VerifyFull,
        Some(_) => {
            return Err("sslmode is none of disable, allow, prefer, require, verify-ca, verify-full".to_owned());
        }
    };
    let seconds = |text: String| text.parse::<u64>().map_err(|_| "connect_timeout is not in seconds");
    let connect_timeout = take("connect_timeout").map(seconds).transpose()?;
    let info = ConnInfo {
        dbname: take("dbname").unwrap_or_else(|| user.clone()),
        user,
        host,
        hostaddr,
        port,
        password: take("password"),
        sslmode,
        sslrootcert: take("sslrootcert").map(PathBuf::from),
        sslcert: take("sslcert").map(PathBuf::from),
        sslkey: take("sslkey").map(PathBuf::from),
        application_name: take("application_name").unwrap_or_else(|| "embrasure-flow".to_owned()),
        options: take("options"),
        connect_timeout: connect_timeout.filter(|s| *s > 0).map(Duration::from_secs),
    };
    if take("channel_binding").is_some_and(|value| value == "require") {
        return Err("channel_binding=require is not supported; use sslmode=verify-full".to_owned());
    }
    // What only tunes the socket, or is the only thing done anyway, is accepted and ignored.
    for ignored in [
        "fallback_application_name",
        "client_encoding",
        "gssencmode",
        "keepalives",
        "keepalives_idle",
        "keepalives_interval",
        "keepalives_count",
        "tcp_user_timeout",
        "target_session_attrs",
        "sslnegotiation",
        "sslcompression",
    ] {
        take(ignored);
    }
    match settings.into_keys().next() {
        Some(key) => Err(format!("parameter {key} is not supported")),
        None => Ok(info),
    }
}
