//! Connects to the port of a simulated pod that a command such as `kubectl port-forward` forwards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::process::RunningCommand;

/// Starts the command, which forwards port 80 of a pod, and ends it. Returns what two connections
/// send back, each of which sends a word.
///
/// # Panics
/// When the command or a connection fails.
pub fn echo_through_port_forward(command: &Command) -> [String; 2] {
    let mut forward = RunningCommand::start(command);
    let mut lines = BufReader::new(forward.child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.strip_prefix("Forwarding from ").unwrap();
    let (address, _) = address.split_once(" -> 80").unwrap();
    ["first", "second"].map(|word| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(word.as_bytes()).unwrap();
        let mut echo = vec![0; word.len()];
        stream.read_exact(&mut echo).unwrap();
        String::from_utf8(echo).unwrap()
    })
}
