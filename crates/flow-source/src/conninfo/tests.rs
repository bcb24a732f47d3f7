use super::*;

fn check(text: &str, expected: &str) {
    let shown = match ConnInfo::parse(text) {
        Ok(info) => format!("{info} {:?} {:?}", info.password, info.sslmode),
        Err(error) => error.to_string(),
    };
    assert_eq!(shown, expected, "{text}");
}

#[test]
fn both_forms_are_read() {
    check(
        "postgresql://me:p%40ss@db.example:6000/shop?sslmode=verify-full&application_name=x",
        "db.example:6000 database shop user me Some(\"p@ss\") VerifyFull",
    );
    check("postgres://me@[::1]:1/", "::1:1 database me user me None Prefer");
    check(
        "postgres://me@%2Ftmp%2Fpg/d",
        "/tmp/pg:5432 database d user me None Prefer",
    );
    check(
        " host = h user='it''s' ",
        "connection string: a word is not followed by '='; expected key=value or a postgresql:// URL",
    );
    check(
        r"host=h port=7 user='a b' password='x\'\\' dbname=d sslmode=disable",
        r#"h:7 database d user a b Some("x'\\") Disable"#,
    );
}

#[test]
fn mistakes_are_named_without_values() {
    check("host=h", "connection string: user is missing");
    check(
        "user=u port=0",
        "connection string: port is not a number from 1 to 65535",
    );
    check(
        "user=u sslmode=secret",
        "connection string: sslmode is none of disable, allow, prefer, require, verify-ca, verify-full",
    );
    check("user=u fish=1", "connection string: parameter fish is not supported");
    check("user=u password='x", "connection string: password has no closing quote");
    check(
        "postgres://u:%zz@h",
        "connection string: password has a '%' that two hexadecimal digits do not follow",
    );
    check(
        "user=u host=a,b",
        "connection string: host names several servers; a slot lives on one",
    );
}

#[test]
fn the_password_is_never_shown() {
    let info = ConnInfo::parse("user=u password=hunter2 host=h").expect("valid");
    assert!(!format!("{info} {info:?}").contains("hunter2"));
}
