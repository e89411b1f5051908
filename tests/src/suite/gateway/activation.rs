//! The Unix socket, and sockets that systemd passes.

use gpukill_tests::harness::{
    HttpResponse, RunningProgram, TestBox, eventually, gateway_uid, skip,
};
use rustix::process::Signal;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

fn healthy(mut stream: impl std::io::Read + std::io::Write) -> u16 {
    let request = b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    HttpResponse::read(stream).status
}

#[test]
fn unix_socket_answers_and_a_dead_one_is_replaced() {
    let test_box = TestBox::new();
    let path = test_box.gateway_directory().join("gateway.sock");
    let listen = format!("unix:{}", path.display());
    for _ in 0..2 {
        let mut command = test_box.gateway_command("");
        let program = RunningProgram::start(command.args(["--listen", &listen]));
        let status = eventually("it listens", || {
            UnixStream::connect(&path).ok().map(healthy)
        });
        assert_eq!(status, 200);
        program.signal(Signal::TERM);
        assert_eq!(program.wait().0, 0);
    }
}

/// Binds sockets, passes them as systemd does, and becomes the gateway.
const PASS_SOCKETS: &str = "
import os, socket, sys
tcp = socket.socket()
tcp.bind(('127.0.0.1', 0))
tcp.listen()
unix = socket.socket(socket.AF_UNIX)
unix.bind(sys.argv[1])
unix.listen()
print(tcp.getsockname()[1], flush=True)
fds = [os.dup(tcp.fileno()), os.dup(unix.fileno())]
fds = [os.dup2(fd, to) for fd, to in zip([os.dup(fd) for fd in fds], (23, 24))]
os.dup2(23, 3)
os.dup2(24, 4)
os.environ.update(LISTEN_FDS='2', LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
";

#[test]
fn sockets_of_systemd_take_the_place_of_the_settings() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("there is no python3");
    }
    let test_box = TestBox::new();
    let path = test_box.gateway_directory().join("passed.sock");
    let gateway = test_box.gateway_command("[http]\nlisten = [\"127.0.0.1:1\"]\n");
    let mut command = Command::new("python3");
    command.args(["-c", PASS_SOCKETS]).arg(&path);
    command.arg(gateway.get_program()).args(gateway.get_args());
    if let Some(uid) = gateway_uid() {
        command.uid(uid).gid(uid);
    }
    let program = RunningProgram::start(&mut command);
    let port: u16 = program.next_line().parse().unwrap();
    assert_eq!(
        healthy(TcpStream::connect(("127.0.0.1", port)).unwrap()),
        200
    );
    assert_eq!(healthy(UnixStream::connect(&path).unwrap()), 200);
    program.signal(Signal::TERM);
    assert_eq!(program.wait().0, 0);
}
