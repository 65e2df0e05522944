//! Connections kept for the next request, one set a thread.
//!
//! Kept by address, not by backend: a VCL that is loaded anew finds the warm connections of the old one. With TLS, what
//! was asked for and checked is part of it. The one used last is used next, so the surplus of a busy minute grows old and
//! is closed. A thread that has none takes one over from another thread: that costs two calls into the kernel, a new
//! connection a round trip and a place at the server.

use crate::settings::Settings;
use copal_base::{Live, LiveReader};
use copal_net::{Endpoint, Idle, Stream};
use parking_lot::Mutex;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Weak as SharedWeak};
use std::time::{Duration, Instant};

/// How often old connections are looked for.
const SWEEP: Duration = Duration::from_secs(1);

/// Who is at the other end of a connection. Two that are equal may serve for each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    /// The TLS client's identity; `None` without TLS.
    pub(crate) seal: Option<Arc<str>>,
    /// What was sent first.
    pub(crate) preamble: Option<copal_vcl::value::Text>,
}

/// One thread's unused connections, and the settings that thread goes by.
#[derive(Debug)]
pub struct Pools {
    settings: RefCell<LiveReader<Settings>>,
    idle: Arc<Shelf>,
    shelves: Arc<Shelves>,
    sweeping: Cell<bool>,
}

/// One thread's unused connections. Others look only when they have none, so the lock is free but for moments.
type Shelf = Mutex<HashMap<Peer, Vec<Kept>>>;

/// Where the threads of a process find each other's unused connections.
#[derive(Debug, Default)]
pub struct Shelves(Mutex<Vec<SharedWeak<Shelf>>>);

#[derive(Debug)]
struct Kept {
    stream: Stream,
    since: Instant,
}

impl Pools {
    /// An empty set for this thread, which shares with no other.
    pub fn new(settings: &Arc<Live<Settings>>) -> Rc<Self> {
        Self::among(settings, &Arc::default())
    }

    /// An empty set for this thread, which shares with all that were given the same `shelves`.
    pub fn among(settings: &Arc<Live<Settings>>, shelves: &Arc<Shelves>) -> Rc<Self> {
        let idle = Arc::new(Shelf::default());
        {
            let mut known = shelves.0.lock();
            known.retain(|shelf| shelf.strong_count() > 0);
            known.push(Arc::downgrade(&idle));
        }
        Rc::new(Self {
            settings: RefCell::new(settings.reader()),
            idle,
            shelves: Arc::clone(shelves),
            sweeping: Cell::new(false),
        })
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(self.settings.borrow_mut().current())
    }

    /// How many connections are kept.
    pub fn len(&self) -> usize {
        self.idle.lock().values().map(Vec::len).sum()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.idle.lock().is_empty()
    }

    /// Closes all kept connections.
    pub fn clear(&self) {
        let closed = std::mem::take(&mut *self.idle.lock());
        drop(closed);
    }

    /// A kept connection that is still open and has nothing to say. Others met on the way are closed.
    pub(crate) fn take(&self, peer: &Peer) -> Option<Stream> {
        take_from(&mut self.idle.lock(), peer).or_else(|| self.take_over(peer))
    }

    /// One that another thread keeps.
    fn take_over(&self, peer: &Peer) -> Option<Stream> {
        let others: Vec<Arc<Shelf>> = {
            let known = self.shelves.0.lock();
            known
                .iter()
                .filter_map(SharedWeak::upgrade)
                .filter(|shelf| !Arc::ptr_eq(shelf, &self.idle))
                .collect()
        };
        others.iter().find_map(|shelf| {
            let stream = take_from(&mut *shelf.try_lock()?, peer)?;
            let stream = stream.adopt().ok()?;
            (stream.look() == Idle::Quiet).then_some(stream)
        })
    }

    /// Keeps a connection; says whether there was room.
    pub(crate) fn put(self: &Rc<Self>, peer: Peer, stream: Stream) -> bool {
        let settings = self.settings();
        if settings.idle_timeout <= 0.0 || settings.resting.contains(&peer.endpoint) {
            return false;
        }
        {
            let mut idle = self.idle.lock();
            let kept = idle.entry(peer).or_default();
            if kept.len() >= settings.idle_max {
                return false;
            }
            kept.push(Kept { stream, since: Instant::now() });
        }
        if !self.sweeping.replace(true) {
            tokio::task::spawn_local(sweep(Rc::downgrade(self)));
        }
        true
    }

    /// Closes what is too old, what the other side has closed, and what only cold VCLs used.
    fn close_old(&self, now: Instant) {
        let settings = self.settings();
        let limit = Duration::try_from_secs_f64(settings.idle_timeout).unwrap_or(Duration::MAX);
        self.idle.lock().retain(|peer, kept| {
            if settings.resting.contains(&peer.endpoint) {
                return false;
            }
            kept.retain(|one| {
                now.saturating_duration_since(one.since) < limit && one.stream.idle() == Idle::Quiet
            });
            !kept.is_empty()
        });
    }
}

/// The one used last that is still open. Others met on the way are closed.
fn take_from(idle: &mut HashMap<Peer, Vec<Kept>>, peer: &Peer) -> Option<Stream> {
    let kept = idle.get_mut(peer)?;
    let mut found = None;
    while let Some(candidate) = kept.pop() {
        if candidate.stream.idle() == Idle::Quiet {
            found = Some(candidate.stream);
            break;
        }
    }
    if kept.is_empty() {
        idle.remove(peer);
    }
    found
}

/// Runs while anything is kept.
async fn sweep(pools: Weak<Pools>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pools) = pools.upgrade() else { return };
        pools.close_old(Instant::now());
        if pools.is_empty() {
            pools.sweeping.set(false);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use copal_net::{connect, worker};

    #[test]
    fn last_in_is_first_out_and_the_dead_are_closed() {
        worker::block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
            let peer = Peer { endpoint: endpoint.clone(), seal: None, preamble: None };
            let sealed = Peer { endpoint: endpoint.clone(), seal: Some("name".into()), preamble: None };
            let settings = Arc::new(Live::new(Settings { idle_max: 2, ..Settings::default() }));
            let pools = Pools::new(&settings);
            let (mut locals, mut far) = (Vec::new(), Vec::new());
            for kept in [true, true, false] {
                let stream = connect(&endpoint).await.unwrap();
                far.push(listener.accept().unwrap().0);
                locals.push(stream.local());
                assert_eq!(pools.put(peer.clone(), stream), kept);
            }
            assert!(pools.take(&sealed).is_none());
            let stream = pools.take(&peer).unwrap();
            assert_eq!(stream.local(), locals[1]);
            assert!(pools.put(peer.clone(), stream));
            pools.close_old(Instant::now());
            assert_eq!(pools.len(), 2);
            pools.close_old(Instant::now() + Duration::from_secs(61));
            assert!(pools.is_empty());
            assert!(pools.take(&peer).is_none());
            let stream = connect(&peer.endpoint).await.unwrap();
            let far = listener.accept().unwrap();
            assert!(pools.put(peer.clone(), stream));
            let resting = Arc::new(std::collections::HashSet::from([peer.endpoint.clone()]));
            settings.update(|settings| settings.resting = resting);
            pools.close_old(Instant::now());
            assert!(pools.is_empty());
            drop(far);
        });
    }

    #[test]
    fn a_thread_takes_over_what_another_keeps() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::Tcp(listener.local_addr().unwrap());
        let peer = Peer { endpoint, seal: None, preamble: None };
        let settings = Arc::new(Live::new(Settings::default()));
        let shelves = Arc::new(Shelves::default());
        let (filled, wait_filled) = std::sync::mpsc::channel();
        let (taken, wait_taken) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (peer, settings, shelves) = (&peer, &settings, &shelves);
            scope.spawn(move || {
                worker::block_on(async {
                    let pools = Pools::among(settings, shelves);
                    let stream = connect(&peer.endpoint).await.unwrap();
                    let local = stream.local();
                    assert!(pools.put(peer.clone(), stream));
                    filled.send(local).unwrap();
                    wait_taken.recv().unwrap();
                    assert!(pools.is_empty());
                });
            });
            let local = wait_filled.recv().unwrap();
            let mut far = listener.accept().unwrap().0;
            worker::block_on(async {
                let pools = Pools::among(settings, shelves);
                let mut stream = pools.take(peer).expect("the other thread keeps one");
                assert_eq!(stream.local(), local);
                std::io::Write::write_all(&mut far, b"hello").unwrap();
                let mut buffer = [0; 8];
                assert_eq!(stream.read(&mut buffer).await.unwrap(), 5);
                assert!(pools.take(peer).is_none());
            });
            taken.send(()).unwrap();
        });
    }
}
