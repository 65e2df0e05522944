//! One thread's front: its listeners, and what its connections share.

use crate::buffer::Pool;
use crate::respond::Writer;
use crate::session::{self, Door};
use crate::settings::Settings;
use base::LiveReader;
use cache::{Exchange, Local, Session};
use copal_base as base;
use copal_cache as cache;
use copal_net as net;
use copal_wire::h1::Memo;
use net::listen::{Acceptor, Listener, Protocol, Statistics};
use net::worker::Stop;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How often a thread does its housekeeping.
const TICK: Duration = Duration::from_millis(100);

/// How many requests' memory is kept.
const WORKS_MAX: usize = 256;

/// What a connection needs only while it answers a request.
pub(crate) struct Work {
    pub(crate) exchange: Box<Exchange>,
    pub(crate) writer: Writer,
}

/// What the connections of one thread share.
pub struct Front {
    pub(crate) local: Rc<Local>,
    pub(crate) buffers: Pool,
    pub(crate) memo: RefCell<Memo>,
    /// Requests' memory between two requests. The last one given back is the next one used, so that busy connections
    /// share what the processor's caches hold.
    works: RefCell<Vec<Work>>,
    settings: RefCell<LiveReader<Settings>>,
    stopping: Cell<bool>,
}

impl Front {
    /// The front of a thread.
    pub fn new(local: Rc<Local>, settings: LiveReader<Settings>) -> Rc<Self> {
        Rc::new(Self {
            local,
            buffers: Pool::default(),
            memo: RefCell::default(),
            works: RefCell::default(),
            settings: RefCell::new(settings),
            stopping: Cell::new(false),
        })
    }

    pub(crate) fn settings(&self) -> Settings {
        **self.settings.borrow_mut().current()
    }

    /// The setting alone, for every request.
    #[inline]
    pub(crate) fn may_find_no_room(&self) -> bool {
        self.settings.borrow_mut().current().may_find_no_room
    }

    /// Memory for a request on the connection of `session`.
    pub(crate) fn work(&self, session: &Rc<Session>) -> Work {
        let spare = self.works.borrow_mut().pop();
        match spare {
            Some(mut work) => {
                work.exchange.attach(session);
                work
            }
            None => {
                Work { exchange: Box::new(Exchange::new(&self.local, session)), writer: Writer::default() }
            }
        }
    }

    /// Takes a request's memory back.
    pub(crate) fn rest(&self, work: Work) {
        let mut works = self.works.borrow_mut();
        if works.len() < WORKS_MAX {
            works.push(work);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Serves the listeners until `stop`; the worker then waits for the connections that still answer a request.
    pub async fn run(self: Rc<Self>, entrances: Vec<Entrance>, stop: Stop) {
        let doors: Vec<_> = entrances
            .into_iter()
            .map(|entrance| tokio::task::spawn_local(accept(Rc::clone(&self), entrance, stop.clone())))
            .collect();
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.wait() => break,
                _ = tick.tick() => self.local.tick(),
            }
        }
        self.stopping.set(true);
        for door in doors {
            // A door fails only by a panic, which has been reported.
            let _ = door.await;
        }
    }
}

/// One listening socket of this thread, with what VCL may know of it.
pub struct Entrance {
    /// `local.socket`: the name given with `-a`.
    pub name: String,
    /// `local.endpoint`.
    pub endpoint: String,
    /// What is spoken there.
    pub protocol: Protocol,
    /// The socket.
    pub listener: Listener,
    /// Counts of failed accepts, shared by all threads.
    pub failures: Arc<Statistics>,
}

async fn accept(front: Rc<Front>, entrance: Entrance, stop: Stop) {
    let Entrance { name, endpoint, protocol, listener, failures } = entrance;
    let mut acceptor = match Acceptor::new(listener) {
        Ok(acceptor) => acceptor,
        Err(error) => {
            eprintln!("listener {name} at {endpoint}: {error}");
            return;
        }
    };
    let door = Rc::new(Door { name, endpoint, protocol });
    let serve = |stream| net::worker::task(session::serve(Rc::clone(&front), Rc::clone(&door), stream));
    loop {
        tokio::select! {
            stream = acceptor.accept(&failures) => serve(stream),
            () = stop.wait() => break,
        }
    }
    // Who was let in by the kernel already gets an answer.
    while let Some(stream) = acceptor.accept_waiting() {
        serve(stream);
    }
}
