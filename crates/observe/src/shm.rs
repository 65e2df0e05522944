//! What a process offers to readers: [`Worker`] the log and the counters, [`Manager`] its arguments and its own counters.
//!
//! ```text
//! threads --> stripes (class Stripe) --merge()--> MAIN, COPAL (class Stat) --> varnishstat
//!                 \----------------- summed by --------------------------> copal stat
//! threads --> VBE.*, SMA.* (class Stat) --> both
//! ```

use crate::counters::{COPAL, Counter, Counters, MAIN};
use crate::map::{Mapping, View};
use crate::point::SectionKind;
use crate::records::LogWriter;
use crate::sections::{Dev, LOCKS, Lck, Mempool, Mgt, POOLS, Section, Sma, Smf, Vbe, Xkey};
use crate::vsl::{self, Ring};
use crate::vsm::{Directory, MANAGER, Segment, WORKER};
use copal_base::Time;
use parking_lot::Mutex;
use std::io;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a counter segment before its values: a word that says it is complete, the offset of the values (64 bits), the
/// number of the document (64 bits).
pub(crate) const HEAD_BYTES: usize = 24;
/// The class of a thread's stripe: not one of Varnish's, so its tools pass it over.
pub(crate) const STRIPE_CLASS: &str = "Stripe";

fn write_head(mapping: &Mapping, id: u64) {
    let words = mapping.long_words();
    words[1].store(HEAD_BYTES as u64, Ordering::Relaxed);
    words[2].store(id, Ordering::Relaxed);
    mapping.words()[0].store(1, Ordering::Release);
}

fn add_document(directory: &Arc<Directory>, kind: &SectionKind) -> io::Result<Segment> {
    let document = kind.document();
    directory.add("StatDoc", &format!("{:x}", kind.id), HEAD_BYTES + document.len() + 1, |mapping| {
        mapping.copy_in(HEAD_BYTES, document.as_bytes());
        write_head(mapping, kind.id);
    })
}

fn add_values(
    directory: &Arc<Directory>,
    class: &str,
    ident: &str,
    kind: &SectionKind,
    values: usize,
) -> io::Result<Segment> {
    directory.add(class, ident, HEAD_BYTES + 8 * values, |mapping| write_head(mapping, kind.id))
}

/// A section of counters of its own, found by readers as long as this value lives and is not hidden.
#[derive(Debug)]
pub struct Live<T> {
    view: View<T>,
    segment: Segment,
}

impl<T> Live<T> {
    /// Hides it from readers, or shows it again. It is counted in it all the same.
    ///
    /// # Errors
    /// The file that could not be written, and why.
    pub fn set_shown(&self, shown: bool) -> io::Result<()> {
        self.segment.set_listed(shown)
    }
}

impl<T: Section> Live<T> {
    fn add(directory: &Arc<Directory>, name: &str) -> io::Result<Live<T>> {
        let kind = T::kind();
        let ident = if name.is_empty() { kind.label.to_owned() } else { format!("{}.{name}", kind.label) };
        let segment = add_values(directory, "Stat", &ident, kind, kind.points.len())?;
        Ok(Live { view: View::new(Arc::clone(segment.mapping()), HEAD_BYTES), segment })
    }
}

impl<T: Section> Deref for Live<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.view
    }
}

/// The worker's shared memory. Everything in it goes when the last user is dropped.
#[derive(Debug)]
pub struct Worker {
    log: LogWriter,
    counters: Arc<CounterSet>,
}

impl Worker {
    /// Makes the worker's part of the work directory, which must exist.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn create(work_directory: &Path, settings: &vsl::Settings, now: Time) -> io::Result<Worker> {
        let directory = Directory::create(work_directory, WORKER)?;
        let counters = Arc::new(CounterSet::create(&directory, now)?);
        let log = LogWriter(Arc::new(Ring::create(&directory, settings)?));
        Ok(Worker { log, counters })
    }

    /// The log.
    pub fn log(&self) -> &LogWriter {
        &self.log
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<CounterSet> {
        &self.counters
    }

    /// Brings what Varnish's tools read up to date: call it a few times a second. `now` is by the same clock as at
    /// creation.
    pub fn merge(&self, now: Time) {
        let counters = &self.counters;
        let log = self.log.statistics();
        let control = counters.control();
        control.uptime.set((now - counters.began).max(0.0) as u64);
        control.summs.add_shared(1);
        control.shm_records.set(log.records);
        control.shm_writes.set(log.writes);
        control.shm_flushes.set(log.flushes);
        control.shm_cont.set(log.contended);
        control.shm_cycles.set(log.cycles);
        control.log_lost.set(log.lost);
        counters.merge();
    }
}

/// All counters of a worker.
#[derive(Debug)]
pub struct CounterSet {
    directory: Arc<Directory>,
    began: Time,
    control: View<Counters>,
    main: Segment,
    copal: Segment,
    stripes: Mutex<Stripes>,
    _locks: Vec<Live<Lck>>,
    _pools: Vec<Live<Mempool>>,
    keys: Live<Xkey>,
    _documents: Vec<Segment>,
}

#[derive(Debug, Default)]
struct Stripes {
    segments: Vec<Segment>,
    /// Numbers in `segments` that no thread uses.
    free: Vec<usize>,
}

impl CounterSet {
    fn create(directory: &Arc<Directory>, now: Time) -> io::Result<CounterSet> {
        let mut documents = Vec::new();
        for kind in
            [&MAIN, &COPAL, Sma::KIND, Smf::KIND, Dev::KIND, Vbe::KIND, Lck::KIND, Mempool::KIND, Xkey::KIND]
        {
            documents.push(add_document(directory, kind)?);
        }
        let main = add_values(directory, "Stat", MAIN.label, &MAIN, MAIN.points.len())?;
        let copal = add_values(directory, "Stat", COPAL.label, &COPAL, COPAL.points.len())?;
        let first = add_stripe(directory, 0)?;
        let control = View::new(Arc::clone(first.mapping()), HEAD_BYTES);
        let stripes = Mutex::new(Stripes { segments: vec![first], free: Vec::new() });
        let locks = LOCKS.iter().map(|name| Live::add(directory, name)).collect::<io::Result<_>>()?;
        let pools = POOLS.iter().map(|name| Live::add(directory, name)).collect::<io::Result<_>>()?;
        let keys: Live<Xkey> = Live::add(directory, "")?;
        keys.set_shown(false)?;
        let directory = Arc::clone(directory);
        Ok(CounterSet {
            directory,
            began: now,
            control,
            main,
            copal,
            stripes,
            _locks: locks,
            _pools: pools,
            keys,
            _documents: documents,
        })
    }

    /// A stripe for the calling thread. A stripe that a former thread left is taken over with its counts.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn stripe(self: &Arc<Self>) -> io::Result<Stripe> {
        let mut stripes = self.stripes.lock();
        let number = match stripes.free.pop() {
            Some(number) => number,
            None => {
                let number = stripes.segments.len();
                stripes.segments.push(add_stripe(&self.directory, number)?);
                number
            }
        };
        let view = View::new(Arc::clone(stripes.segments[number].mapping()), HEAD_BYTES);
        Ok(Stripe { view, number: Some(number), set: Arc::clone(self), _one_thread: PhantomData })
    }

    /// A stripe that nobody reads, for what is to leave no trace in the counters.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn aside(self: &Arc<Self>) -> io::Result<Stripe> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let points = MAIN.points.len() + COPAL.points.len();
        // The file goes at once; the memory stays as long as the view of it.
        let segment = add_values(&self.directory, "Aside", &name, &MAIN, points)?;
        let view = View::new(Arc::clone(segment.mapping()), HEAD_BYTES);
        Ok(Stripe { view, number: None, set: Arc::clone(self), _one_thread: PhantomData })
    }

    /// The stripe that belongs to no thread, for control threads: count in it by `add_shared` and `sub_shared`, or by
    /// `set` where one thread alone knows the value.
    pub fn control(&self) -> &Counters {
        &self.control
    }

    /// What all stripes together have counted of `counter` so far.
    pub fn total(&self, counter: impl Fn(&Counters) -> &Counter) -> u64 {
        let stripes = self.stripes.lock();
        let stripe = |segment: &Segment| View::<Counters>::new(Arc::clone(segment.mapping()), HEAD_BYTES);
        stripes.segments.iter().fold(0, |sum, segment| sum.wrapping_add(counter(&stripe(segment)).get()))
    }

    /// Counters of the backend `<vcl>.<backend>`.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn backend(&self, vcl: &str, backend: &str) -> io::Result<Live<Vbe>> {
        Live::add(&self.directory, &format!("{vcl}.{backend}"))
    }

    /// Counters of surrogate keys; hidden until they are shown.
    pub fn keys(&self) -> &Live<Xkey> {
        &self.keys
    }

    /// Counters of a store in memory.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn memory_store(&self, name: &str) -> io::Result<Live<Sma>> {
        Live::add(&self.directory, name)
    }

    /// Counters of a store in a file.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn file_store(&self, name: &str) -> io::Result<Live<Smf>> {
        Live::add(&self.directory, name)
    }

    /// Counters of a device of a store: its number within the store, from 0.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn device(&self, store: &str, number: usize) -> io::Result<Live<Dev>> {
        Live::add(&self.directory, &format!("{store}.{number}"))
    }

    /// Sums the stripes into MAIN and COPAL.
    fn merge(&self) {
        let stripes = self.stripes.lock();
        let values = HEAD_BYTES / 8;
        let main = &self.main.mapping().long_words()[values..];
        let copal = &self.copal.mapping().long_words()[values..];
        for (at, total) in main.iter().chain(copal).enumerate() {
            let sum = stripes.segments.iter().fold(0u64, |sum, stripe| {
                sum.wrapping_add(stripe.mapping().long_words()[values + at].load(Ordering::Relaxed))
            });
            total.store(sum, Ordering::Relaxed);
        }
    }
}

fn add_stripe(directory: &Arc<Directory>, number: usize) -> io::Result<Segment> {
    add_values(directory, STRIPE_CLASS, &number.to_string(), &MAIN, MAIN.points.len() + COPAL.points.len())
}

/// One thread's counters. It stays with its thread; when dropped its counts stay and the next thread goes on from them.
#[derive(Debug)]
pub struct Stripe {
    view: View<Counters>,
    /// Its number in the set; none if it stands aside.
    number: Option<usize>,
    set: Arc<CounterSet>,
    /// Not `Sync`: plain loads and stores count only with one writer.
    _one_thread: PhantomData<std::cell::Cell<()>>,
}

impl Deref for Stripe {
    type Target = Counters;

    #[inline]
    fn deref(&self) -> &Counters {
        &self.view
    }
}

impl Drop for Stripe {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.set.stripes.lock().free.push(number);
        }
    }
}

/// The manager's shared memory: where its control connection listens and the like, and its counters.
#[derive(Debug)]
pub struct Manager {
    directory: Arc<Directory>,
    counters: Live<Mgt>,
    arguments: Mutex<Vec<Segment>>,
    began: Time,
    _document: Segment,
}

impl Manager {
    /// Makes the manager's part of the work directory, which must exist. `identity` is what `-i` gave; tools print it.
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn create(work_directory: &Path, identity: &str, now: Time) -> io::Result<Manager> {
        let directory = Directory::create(work_directory, MANAGER)?;
        let document = add_document(&directory, Mgt::KIND)?;
        let counters = Live::add(&directory, "")?;
        let manager =
            Manager { directory, counters, arguments: Mutex::default(), began: now, _document: document };
        manager.set_argument("-i", identity)?;
        Ok(manager)
    }

    /// Offers an argument's value to readers, in place of an earlier one. The control client looks for `-T` (lines
    /// `address port`) and `-S` (the secret's path).
    ///
    /// # Errors
    /// The file that could not be made, and why.
    pub fn set_argument(&self, name: &str, value: &str) -> io::Result<()> {
        let segment = self
            .directory
            .add("Arg", name, value.len() + 1, |mapping| mapping.copy_in(0, value.as_bytes()))?;
        let mut arguments = self.arguments.lock();
        arguments.retain(|other| other.entry().ident != name);
        arguments.push(segment);
        Ok(())
    }

    /// MGT.*.
    pub fn counters(&self) -> &Mgt {
        &self.counters
    }

    /// Sets MGT.uptime: call it a few times a second.
    pub fn merge(&self, now: Time) {
        self.counters.uptime.set((now - self.began).max(0.0) as u64);
    }
}
