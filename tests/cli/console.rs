//! `console`: the address that it prints opens its pages.

use std::io::{Read, Write};
use std::net::TcpStream;

use harness::process::lines_of;

use crate::cli::fixture::{CliFixture, TIMEOUT};

/// The whole reply of a server that closes the connection.
fn get(host: &str, path: &str, cookie: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncookie: {cookie}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

// proves: CON-command, CLI-examples
#[test]
fn the_printed_address_opens_the_pages() {
    let fixture = CliFixture::shared();
    let examples = fixture.examples("console");
    let arguments: Vec<&str> = examples[0].split_whitespace().collect();
    let mut command = fixture.spawn(&arguments);
    let lines = lines_of(&mut command.child);
    let link = lines.recv_timeout(TIMEOUT).unwrap();
    let address = link.strip_prefix("http://").unwrap();
    let (host, token) = address.split_once("/login").unwrap();
    let login = get(host, &format!("/login{token}"), "");
    assert!(login.starts_with("HTTP/1.1 303 "), "{login}");
    let (_, cookie) = login.split_once("set-cookie: ").unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let next = lines.recv_timeout(TIMEOUT).unwrap();
    assert_ne!(next, link);
    let page = get(host, "/workloads", cookie);
    assert!(page.starts_with("HTTP/1.1 200 "), "{page}");
    assert!(get(host, "/workloads", "").starts_with("HTTP/1.1 401 "));
    fixture
        .run("console --listen 0.0.0.0:0")
        .failed_with("the console serves on loopback only");
}
