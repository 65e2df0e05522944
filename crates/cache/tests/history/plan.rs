//! What a history consists of, and how one is made up. The types print as what builds them, so that a failure's smallest
//! history can be pasted into `regressions.rs`.

use proptest::prelude::*;

/// A cache, resources, and what happens.
#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) world: Setup,
    pub(crate) sites: Vec<Site>,
    pub(crate) steps: Vec<Step>,
}

/// The cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    /// The parameter `rfc`.
    pub(crate) rfc: bool,
    /// `vcl_recv` is VCL that knows PURGE; else all is built in.
    pub(crate) purges: bool,
    /// Size of the one store, in KiB.
    pub(crate) store_kib: u64,
    /// The parameter `segment_size`; `sparse_min_size` is twice that.
    pub(crate) segment: u64,
}

/// How long the body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Size {
    Empty,
    Small,
    Medium,
    Large,
    /// Each version as long as the one before.
    Same,
}

/// How the origin says where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
    Close,
}

/// Which validators a response has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    None,
    Weak,
    Strong,
}

/// What stays the same of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Site {
    pub(crate) size: Size,
    pub(crate) framing: Framing,
    pub(crate) tag: Tag,
    pub(crate) modified: bool,
    /// The origin serves ranges of it.
    pub(crate) ranges: bool,
    /// Each response says `Vary: X-Variant`.
    pub(crate) vary: bool,
    /// Each response has Expires.
    pub(crate) expires: bool,
    pub(crate) policy: Policy,
}

/// What a response says of its caching.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Policy {
    pub(crate) max_age: Option<u32>,
    pub(crate) s_maxage: Option<u32>,
    /// Seconds from Date to Expires, where the site has that field.
    pub(crate) expires: i32,
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) swr: Option<u32>,
    pub(crate) sie: Option<u32>,
    /// A cache on the way had it for so long; 0: there was none.
    pub(crate) age: u32,
}

/// How the origin behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    /// Closes the connection without an answer.
    Refuse,
    /// Answers 500.
    Error,
    /// Breaks off in the middle of the body.
    Cut,
    /// The head comes when the gates open.
    SlowHead,
    /// Half of the body comes when the gates open.
    SlowBody,
}

/// One thing that happens.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Ask(Ask),
    /// The clock goes on by so many tenths of a second.
    Clock(u32),
    /// The resource has a new version.
    Change(usize),
    Policy(usize, Policy),
    Mood(usize, Mood),
    Purge(usize),
    /// A ban by the request's URL, or else by the object's fields.
    Ban(usize, bool),
    /// Whatever waits at a gate goes on.
    Open,
    /// Everything under way comes to its end.
    Settle,
    /// That, and then the cache ends and begins again on the same disk: in order, or as after a crash with this seed.
    Restart(Option<u64>),
}

/// Which version's validators a condition names, counted back from the present one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Back(u32),
    Star,
}

/// A request's condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    NoneMatch(Which),
    ModifiedSince(u32),
    Match(Which),
    UnmodifiedSince(u32),
}

/// A range, in thousandths of twice the length of the resource's longest version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    /// `first-last`
    FromTo(u32, u32),
    /// `first-`
    From(u32),
    /// `-count`
    Last(u32),
}

/// What happens to the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Nothing else happens until it is read.
    Alone,
    /// What comes next happens at the same time.
    Along,
    /// Read slowly: the most of it when the gates open.
    Slow,
    /// The client leaves after so many bytes.
    Leaves(u32),
    /// The client is torn away when the gates open, wherever it stands.
    Vanishes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    Put,
    Delete,
}

impl Method {
    pub(crate) fn is_unsafe(self) -> bool {
        matches!(self, Method::Post | Method::Put | Method::Delete)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        }
    }
}

/// Cache-Control of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) no_cache: bool,
    pub(crate) no_store: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u32>,
    pub(crate) max_stale: Option<u32>,
    pub(crate) min_fresh: Option<u32>,
    pub(crate) sie: Option<u32>,
}

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) site: usize,
    pub(crate) method: Method,
    pub(crate) variant: u8,
    pub(crate) authorized: bool,
    pub(crate) spans: Vec<Span>,
    /// If-Range names this version.
    pub(crate) if_range: Option<u32>,
    pub(crate) condition: Condition,
    pub(crate) wishes: Wishes,
    pub(crate) manner: Manner,
}

fn lifetime() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![0, 1, 5, 20, 60, 300])
}

fn maybe(weight: u32) -> impl Strategy<Value = Option<u32>> {
    prop_oneof![(10 - weight) => Just(None), weight => lifetime().prop_map(Some)]
}

fn seldom(one_in: u32) -> impl Strategy<Value = bool> {
    (0..one_in).prop_map(|chance| chance == 1)
}

pub(crate) fn policy() -> impl Strategy<Value = Policy> {
    let lifetimes = (maybe(7), maybe(1), prop::sample::select(vec![-5, 0, 5, 30]), maybe(3), maybe(3));
    let words = (seldom(18), seldom(14), seldom(18), seldom(6), seldom(7));
    let age = prop_oneof![8 => Just(0_u32), 1 => Just(3), 1 => Just(30)];
    (lifetimes, words, age).prop_map(|((max_age, s_maxage, expires, swr, sie), words, age)| {
        let (no_store, no_cache, private, public, must_revalidate) = words;
        Policy {
            max_age,
            s_maxage,
            expires,
            no_store,
            no_cache,
            private,
            public,
            must_revalidate,
            swr,
            sie,
            age,
        }
    })
}

fn site() -> impl Strategy<Value = Site> {
    let size = prop_oneof![
        1 => Just(Size::Empty), 3 => Just(Size::Small), 2 => Just(Size::Medium), 3 => Just(Size::Large), 2 => Just(Size::Same)
    ];
    let framing =
        prop_oneof![6 => Just(Framing::Length), 2 => Just(Framing::Chunked), 1 => Just(Framing::Close)];
    let tag = prop_oneof![2 => Just(Tag::None), 2 => Just(Tag::Weak), 5 => Just(Tag::Strong)];
    (size, framing, tag, any::<bool>(), prop::bool::weighted(0.7), seldom(3), seldom(4), policy()).prop_map(
        |(size, framing, tag, modified, ranges, vary, expires, policy)| Site {
            size,
            framing,
            tag,
            modified,
            ranges,
            vary,
            expires,
            policy,
        },
    )
}

fn wishes() -> impl Strategy<Value = Wishes> {
    let some = (seldom(4), seldom(6), seldom(5), maybe(2), maybe(3), maybe(2), maybe(2)).prop_map(
        |(no_cache, no_store, only_if_cached, max_age, max_stale, min_fresh, sie)| Wishes {
            no_cache,
            no_store,
            only_if_cached,
            max_age,
            max_stale,
            min_fresh,
            sie,
        },
    );
    prop_oneof![5 => Just(Wishes::default()), 1 => some]
}

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => (0..600_u32, 0..200_u32).prop_map(|(first, more)| Span::FromTo(first, first + more)),
        1 => (0..800_u32).prop_map(Span::From),
        1 => (0..300_u32).prop_map(Span::Last),
    ]
}

fn ask(sites: usize) -> impl Strategy<Value = Ask> {
    let which = || prop_oneof![5 => (0..3_u32).prop_map(Which::Back), 1 => Just(Which::Star)];
    let method = prop_oneof![
        20 => Just(Method::Get), 3 => Just(Method::Head), 1 => Just(Method::Post), 1 => Just(Method::Put), 1 => Just(Method::Delete)
    ];
    let spans = prop_oneof![
        4 => Just(Vec::new()), 3 => prop::collection::vec(span(), 1), 1 => prop::collection::vec(span(), 2..6)
    ];
    let condition = prop_oneof![
        16 => Just(Condition::None),
        2 => which().prop_map(Condition::NoneMatch),
        1 => (0..3_u32).prop_map(Condition::ModifiedSince),
        1 => which().prop_map(Condition::Match),
        1 => (0..3_u32).prop_map(Condition::UnmodifiedSince),
    ];
    let manner = prop_oneof![
        5 => Just(Manner::Alone),
        9 => Just(Manner::Along),
        2 => Just(Manner::Slow),
        1 => (0..50_000_u32).prop_map(Manner::Leaves),
        1 => Just(Manner::Vanishes),
    ];
    let if_range = prop_oneof![4 => Just(None), 1 => (0..2_u32).prop_map(Some)];
    let who = (0..sites, 0..3_u8, seldom(12));
    (who, method, spans, if_range, condition, wishes(), manner).prop_map(
        |((site, variant, authorized), method, spans, if_range, condition, wishes, manner)| Ask {
            site,
            method,
            variant,
            authorized,
            spans,
            if_range,
            condition,
            wishes,
            manner,
        },
    )
}

fn step(sites: usize) -> impl Strategy<Value = Step> {
    let mood = prop_oneof![
        8 => Just(Mood::Fine), 1 => Just(Mood::Refuse), 1 => Just(Mood::Error), 1 => Just(Mood::Cut),
        4 => Just(Mood::SlowHead), 4 => Just(Mood::SlowBody)
    ];
    prop_oneof![
        30 => ask(sites).prop_map(Step::Ask),
        5 => prop::sample::select(vec![3, 10, 40, 100, 300, 1000]).prop_map(Step::Clock),
        4 => (0..sites).prop_map(Step::Change),
        2 => (0..sites, policy()).prop_map(|(site, policy)| Step::Policy(site, policy)),
        3 => (0..sites, mood).prop_map(|(site, mood)| Step::Mood(site, mood)),
        1 => (0..sites).prop_map(Step::Purge),
        1 => (0..sites, any::<bool>()).prop_map(|(site, by_request)| Step::Ban(site, by_request)),
        3 => Just(Step::Open),
        3 => Just(Step::Settle),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let store = prop::sample::select(vec![64, 200, 600, 4096]);
    (prop::bool::weighted(0.75), any::<bool>(), store, prop::sample::select(vec![4096, 16_384]))
        .prop_map(|(rfc, purges, store_kib, segment)| Setup { rfc, purges, store_kib, segment })
}

/// A resource that is kept in pieces, if at all.
fn large() -> impl Strategy<Value = Site> {
    let size = prop_oneof![3 => Just(Size::Large), 2 => Just(Size::Same)];
    let policy = prop_oneof![3 => Just(Policy { max_age: Some(60), ..Policy::default() }), 1 => policy()];
    (site(), size, any::<bool>(), policy).prop_map(|(site, size, is_tagged, policy)| Site {
        size,
        framing: Framing::Length,
        tag: if is_tagged { Tag::Strong } else { Tag::None },
        modified: !is_tagged || site.modified,
        ranges: true,
        policy,
        ..site
    })
}

/// What happens to such resources: parts are asked for, mostly at once, and versions change under that.
fn piecewise(sites: usize) -> impl Strategy<Value = Step> {
    let manner = prop_oneof![2 => Just(Manner::Alone), 9 => Just(Manner::Along), 1 => Just(Manner::Slow)];
    let spans = prop_oneof![5 => prop::collection::vec(span(), 1), 1 => prop::collection::vec(span(), 2..6)];
    let part = (ask(sites), spans, manner).prop_map(|(asks, spans, manner)| {
        let plain = Ask { method: Method::Get, condition: Condition::None, spans, manner, ..asks };
        Step::Ask(plain)
    });
    prop_oneof![4 => part, 1 => (0..sites).prop_map(Step::Change), 4 => step(sites)]
}

/// A history of objects in pieces, of `steps` steps.
pub(crate) fn pieces(steps: std::ops::Range<usize>) -> impl Strategy<Value = History> {
    (setup(), prop::collection::vec(large(), 1..3)).prop_flat_map(move |(world, sites)| {
        let count = sites.len();
        (Just(world), Just(sites), prop::collection::vec(piecewise(count), steps.clone()))
            .prop_map(|(world, sites, steps)| History { world, sites, steps })
    })
}

/// Any history, of `steps` steps.
pub(crate) fn history(steps: std::ops::Range<usize>) -> impl Strategy<Value = History> {
    (setup(), prop::collection::vec(site(), 1..4)).prop_flat_map(move |(world, sites)| {
        let count = sites.len();
        (Just(world), Just(sites), prop::collection::vec(step(count), steps.clone()))
            .prop_map(|(world, sites, steps)| History { world, sites, steps })
    })
}

/// A history with restarts of a cache on a disk, of `steps` steps.
pub(crate) fn restarts(steps: std::ops::Range<usize>) -> impl Strategy<Value = History> {
    let sites = prop::collection::vec(prop_oneof![3 => site(), 1 => large()], 1..4);
    (setup(), sites).prop_flat_map(move |(world, sites)| {
        let count = sites.len();
        let crash = prop_oneof![1 => Just(None), 2 => any::<u64>().prop_map(Some)];
        let one = prop_oneof![12 => step(count), 4 => piecewise(count), 1 => crash.prop_map(Step::Restart)];
        (Just(world), Just(sites), prop::collection::vec(one, steps.clone())).prop_map(
            |(world, sites, mut steps)| {
                // What never ends never begins again.
                steps.push(Step::Restart(None));
                steps.push(Step::Settle);
                History { world, sites, steps }
            },
        )
    })
}
