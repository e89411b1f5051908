//! The fake daemon's thread and socket.

use crate::fake_daemon::{Script, Session, take_one};
use futures::StreamExt as _;
use gpukill_proto::service::Gpukill as _;
use gpukill_proto::transport::preface::{self, Preface};
use gpukill_proto::transport::{MAX_REQUEST, codec};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use tarpc::server::{BaseChannel, Channel as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;

/// A daemon in a thread. It ends on drop.
pub(crate) struct FakeDaemon {
    pub script: Arc<Script>,
    pub socket: PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl FakeDaemon {
    pub(crate) fn start(directory: &Path, script: Script) -> Self {
        let socket = directory.join("gpukilld.sock");
        let _ = std::fs::remove_file(&socket);
        let script = Arc::new(script);
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let (path, shared) = (socket.clone(), Arc::clone(&script));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let listener = UnixListener::bind(path).expect("bound");
                ready.send(()).expect("somebody waits");
                tokio::select! {
                    () = accept(listener, shared) => {}
                    _ = stopped => {}
                }
            });
        });
        is_ready.recv().expect("it starts");
        Self {
            script,
            socket,
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it ends well");
        }
    }
}

async fn accept(listener: UnixListener, script: Arc<Script>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(converse(stream, Arc::clone(&script)));
    }
}

async fn converse(mut stream: UnixStream, script: Arc<Script>) {
    let is_busy = take_one(&script.busy_connections);
    let status = if is_busy {
        preface::PrefaceStatus::Busy
    } else {
        preface::PrefaceStatus::Welcome
    };
    let mut ours = Preface::new(status, MAX_REQUEST);
    ours.version = script.version;
    let sent = ours.send(&mut stream).await;
    if is_busy || sent.is_err() || Preface::receive(&mut stream).await.is_err() {
        return;
    }
    let hang_up = Arc::new(Notify::new());
    let session = Session(script, Arc::clone(&hang_up));
    let serving = BaseChannel::with_defaults(codec::server_transport(stream))
        .execute(session.serve())
        .for_each(|answer| async {
            tokio::spawn(answer);
        });
    tokio::select! {
        () = serving => {}
        () = hang_up.notified() => {}
    }
}
