//! `cargo bench -p gpukill-tests --bench gateway`: the cost of gpukill-gateway for 8 GPUs with 8
//! processes each and a poll every 2 s: its memory at rest; requests for the snapshot and the metrics,
//! each from 8 connections at once that stay open; and 0, 1, 100 and 250 viewers of the live stream.
//! Then of 8, 1,000 and 10,000 GPUs without processes, which a stand-in for gpukilld reports: the frame
//! of a poll, and the time from the poll until one viewer has all of it.
//!
//! Processor time is that of the gateway and of the daemon with its sensor, without the clients,
//! which are threads of the bench. `-- SECONDS` sets for how long viewers are measured (30).
#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it prints its measurements, and ends where it cannot"
)]

#[path = "process.rs"]
mod process;
#[path = "stand_in_daemon.rs"]
#[allow(dead_code, reason = "the suite needs more of it")]
mod stand_in_daemon;
#[path = "training.rs"]
mod training;

use gpukill_tests::harness::{Daemon, Gateway, TestBox, eventually};
use process::{process_file, status_field};
use stand_in_daemon::StandInDaemon;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use training::Training;

const PROCESSES_PER_GPU: usize = 8;

/// The connections of the requests.
const CONNECTIONS: usize = 8;

/// The requests on each connection.
const REQUESTS: usize = 2_000;

/// The numbers of viewers.
const VIEWERS: [usize; 4] = [0, 1, 100, 250];

/// The numbers of GPUs that the stand-in reports. The answer of a daemon has room for 10,000, and no
/// host has as many.
const GPUS: [u32; 3] = [8, 1_000, 10_000];

/// The polls of the stand-in that are measured.
const POLLS: u32 = 20;

/// Enough for all viewers of one address.
const SETTINGS: &str =
    "[http]\nmax_connections = 512\nmax_peer_connections = 512\nmax_streams = 512\n";

fn main() {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse().ok());
    let observed = Duration::from_secs(numbers.next().unwrap_or(30));
    let test_box = TestBox::new();
    let training = Training::start(&test_box, PROCESSES_PER_GPU);
    let daemon = training.start_as_installed(&test_box);
    let gateway = Gateway::start(&test_box, SETTINGS);
    eventually("the gateway knows all processes", || {
        let text = gateway.get("/metrics").text();
        text.contains("gpukill_user_utilization_ratio{")
            .then_some(())
    });
    println!(
        "at rest, after its first requests: {} KiB resident\n",
        status_field(gateway.pid(), "VmRSS:")
    );
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>12} {:>9}",
        "request", "a second", "median", "p99", "longest", "processor", "bytes"
    );
    for (path, more) in [
        ("/api/v1/snapshot", ""),
        ("/api/v1/snapshot", "accept-encoding: gzip\r\n"),
        ("/metrics", ""),
        ("/-/healthy", ""),
    ] {
        measure_requests(&gateway, path, more);
    }
    println!(
        "\n{:>7} {:>16} {:>16} {:>12} {:>14} {:>14} {:>12}",
        "viewers",
        "gateway, a core",
        "daemon, a core",
        "resident",
        "frames",
        "frames lost",
        "bytes/frame"
    );
    for viewers in VIEWERS {
        measure_viewers(&gateway, &daemon, viewers, observed);
    }
    daemon.stop();
    println!(
        "\n{:>7} {:>12} {:>12} {:>12} {:>14} {:>12} {:>12}",
        "GPUs", "frame", "median", "longest", "processor", "resident", "metrics"
    );
    for gpus in GPUS {
        measure_frames(gpus);
    }
}

/// Reads the frames of polls with this many GPUs, and prints a row.
fn measure_frames(gpus: u32) {
    let test_box = TestBox::new();
    let daemon = StandInDaemon::start(&test_box.socket(), gpus);
    let gateway = Gateway::start(&test_box, SETTINGS);
    eventually("the gateway is ready", || {
        (gateway.get("/-/ready").status == 200).then_some(())
    });
    let mut stream = BufReader::new(gateway.connect());
    let address = gateway.address();
    let request = format!("GET /api/v1/live HTTP/1.0\r\nhost: {address}\r\n\r\n");
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    // The first has no poll of its own.
    let mut bytes = read_frame(&mut stream);
    let before = processor_time(gateway.pid());
    let mut times: Vec<Duration> = (0..POLLS)
        .map(|_| {
            // The gateway asks for the next poll a tenth of a second after it asked for this one.
            std::thread::sleep(Duration::from_millis(200));
            let started_at = Instant::now();
            daemon.poll();
            bytes = read_frame(&mut stream);
            started_at.elapsed()
        })
        .collect();
    let processor = processor_time(gateway.pid()).saturating_sub(before) / POLLS;
    times.sort_unstable();
    let metrics = gateway.get("/metrics").body.len();
    println!(
        "{gpus:>7} {bytes:>12} {:>12} {:>12} {:>14} {:>8} KiB {metrics:>12}",
        microseconds(times[times.len() / 2]),
        microseconds(times[times.len() - 1]),
        microseconds(processor),
        status_field(gateway.pid(), "VmRSS:"),
    );
}

/// Reads a snapshot event to its end, and returns the number of its bytes.
fn read_frame(stream: &mut BufReader<TcpStream>) -> usize {
    let mut bytes = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = stream.read_until(b'\n', &mut line).unwrap();
        assert!(length > 0, "the stream ended");
        if bytes > 0 || line.starts_with(b"event: snapshot") {
            bytes += length;
        }
        if bytes > 0 && line == b"\n" {
            return bytes;
        }
    }
}

/// Sends requests for a path with these headers, and prints a row.
fn measure_requests(gateway: &Gateway, path: &str, more: &str) {
    let address = gateway.address();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{more}\r\n");
    let (before, started_at) = (processor_time(gateway.pid()), Instant::now());
    let answers: Vec<(Duration, usize)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|_| scope.spawn(|| send_requests(address, &request)))
            .collect();
        let answers = clients.into_iter().map(|client| client.join().unwrap());
        answers.flatten().collect()
    });
    let elapsed = started_at.elapsed();
    let processor = processor_time(gateway.pid()).saturating_sub(before);
    let mut times: Vec<Duration> = answers.iter().map(|(time, _)| *time).collect();
    times.sort_unstable();
    let bytes: usize = answers.iter().map(|(_, bytes)| bytes).sum();
    let count = answers.len();
    let name = if more.is_empty() {
        path.to_owned()
    } else {
        format!("{path}, gzip")
    };
    println!(
        "{name:<34} {:>9.0} {:>9} {:>9} {:>9} {:>12} {:>9}",
        count as f64 / elapsed.as_secs_f64(),
        microseconds(times[count / 2]),
        microseconds(times[count * 99 / 100]),
        microseconds(times[count - 1]),
        microseconds(processor / u32::try_from(count).unwrap()),
        bytes / count,
    );
}

fn microseconds(time: Duration) -> String {
    format!("{} us", time.as_micros())
}

/// The duration and the size of each answer on a connection of its own.
fn send_requests(address: SocketAddr, request: &str) -> Vec<(Duration, usize)> {
    let mut stream = BufReader::new(TcpStream::connect(address).unwrap());
    let answers = (0..REQUESTS).map(|_| {
        let started_at = Instant::now();
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let bytes = read_answer(&mut stream);
        (started_at.elapsed(), bytes)
    });
    answers.collect()
}

/// Reads an answer that has its length, and returns the number of all its bytes.
fn read_answer(stream: &mut BufReader<TcpStream>) -> usize {
    let (mut head, mut body) = (0, 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(head > 0 || line.starts_with("HTTP/1.1 200 "), "{line:?}");
        head += line.len();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(length) = line.strip_prefix("content-length: ") {
            body = length.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    assert!(body > 0, "the answer has no length");
    stream.read_exact(&mut vec![0; body]).unwrap();
    head + body
}

/// What all viewers together have read.
#[derive(Default)]
struct Viewed {
    bytes: AtomicU64,
    frames: AtomicU64,
    is_over: AtomicBool,
}

/// Opens streams, reads them for this long, and prints a row.
fn measure_viewers(gateway: &Gateway, daemon: &Daemon, viewers: usize, observed: Duration) {
    let viewed = Viewed::default();
    let daemons = [daemon.pid(), daemon.sensor_pid()];
    let spent = || {
        let of_daemon: Duration = daemons.into_iter().map(processor_time).sum();
        (processor_time(gateway.pid()), of_daemon)
    };
    // HTTP/1.0 has no chunks, so that the bytes are those of the events.
    let request = format!(
        "GET /api/v1/live HTTP/1.0\r\nhost: {}\r\n\r\n",
        gateway.address()
    );
    std::thread::scope(|scope| {
        for _ in 0..viewers {
            let mut stream = gateway.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let viewed = &viewed;
            scope.spawn(move || view(&mut BufReader::new(stream), viewed));
        }
        // The first snapshot is sent at once, to all.
        eventually("every viewer has a frame", || {
            let frames = viewed.frames.load(Ordering::Relaxed);
            (frames >= viewers as u64).then_some(())
        });
        let counts = || [&viewed.bytes, &viewed.frames].map(|it| it.load(Ordering::Relaxed));
        let (before, counted) = (spent(), counts());
        let lost = lost_frames(gateway);
        std::thread::sleep(observed);
        let (after, counted_since) = (spent(), counts());
        let [bytes, frames] = [0, 1].map(|at| counted_since[at] - counted[at]);
        let share = |before: Duration, after: Duration| {
            let used = after.saturating_sub(before).as_secs_f64();
            format!("{:.2} %", 100.0 * used / observed.as_secs_f64())
        };
        println!(
            "{viewers:>7} {:>16} {:>16} {:>9} KiB {frames:>14} {:>14} {:>12}",
            share(before.0, after.0),
            share(before.1, after.1),
            status_field(gateway.pid(), "VmRSS:"),
            lost_frames(gateway) - lost,
            bytes.checked_div(frames).unwrap_or_default(),
        );
        viewed.is_over.store(true, Ordering::Relaxed);
    });
}

/// Counts what comes until the measurement is over: at the latest with the next event.
fn view(stream: &mut BufReader<TcpStream>, viewed: &Viewed) {
    let mut line = Vec::new();
    while !viewed.is_over.load(Ordering::Relaxed) {
        line.clear();
        let length = stream.read_until(b'\n', &mut line).unwrap();
        assert!(length > 0, "the stream ended");
        viewed.bytes.fetch_add(length as u64, Ordering::Relaxed);
        if line.starts_with(b"event: snapshot") {
            viewed.frames.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The snapshots that slow viewers did not get.
fn lost_frames(gateway: &Gateway) -> u64 {
    let text = gateway.get("/metrics").text();
    let name = "gpukill_gateway_stream_lag_total ";
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.unwrap().parse().unwrap()
}

/// The processor time of a process, with that of threads that have ended (proc_pid_stat(5)).
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(process_file(pid, "stat")).unwrap();
    // The name of the program, in parentheses, may contain blanks. The first field after it is
    // number 3; 14 and 15 are the times in user and kernel mode.
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks: u64 = [14, 15]
        .map(|at| fields[at - 3].parse::<u64>().unwrap())
        .iter()
        .sum();
    let a_second = rustix::param::clock_ticks_per_second();
    Duration::from_secs_f64(ticks as f64 / a_second as f64)
}
