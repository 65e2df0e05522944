//! `copal sim`: what a cache of some size, under each policy of eviction, would have hit of the requests of an access log.
//!
//! The policies are those of the store, the very code. What is not simulated: lifetimes, Vary, and that what is being read
//! is not evicted. A trace is read as a stream; what grows is the known keys.

mod cache;
mod generate;
mod lines;
mod report;
mod trace;

use crate::Failure;
use crate::options::{self, Given, Opt};
use crate::output::Output;
use cache::{Cache, Request, Rules};
use copal_base::reason;
use copal_base::units::{parse_bytes, parse_duration};
use copal_store::Policy;
use generate::{Recipe, Trace};
use lines::Lines;
use report::Count;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::process::ExitCode;
use trace::{Asked, Reader, Said, Why};

/// The options.
pub(crate) const OPTIONS: &[Opt] = &[
    Opt::value('g', "recipe", "Make a trace up instead of reading one").named("generate"),
    Opt::flag('h', "Usage help").named("help"),
    Opt::value('i', "seconds", "Further uses in this time do not count, as lru_interval (2)")
        .named("interval"),
    Opt::flag('j', "Answer in JSON").named("json"),
    Opt::value('o', "bytes", "What an object takes besides its body (0)").named("overhead"),
    Opt::value('p', "name,...", "Policies: lru, s3fifo, sieve (all)").named("policy"),
    Opt::value('s', "size,...", "Sizes of the cache (1G)").named("size"),
    Opt::flag('V', "Version"),
];

/// The most caches at once.
const CACHES_MAX: usize = 1000;

/// What the options do not say.
pub(crate) const NOTES: &str = "
Reads access logs as varnishncsa writes them by itself, or tables of time,key,size, with
or without a first line of names; - is the standard input. For each policy and size: how
many requests would have been hits, how many of the bytes, and what would have been
stored. Times to live are not looked at; an object keeps the size it is stored with.

A trace that is made up: zipf=0.9,keys=100000,requests=1000000,mean=16K,seed=1 unless
said otherwise; and parts of the requests for keys never asked for again (once=0.3), in
walks through other keys (scan=0.2); keys that are replaced meanwhile (churn=0.5).
";

/// Runs the tool.
pub(crate) fn run(given: &Given) -> Result<ExitCode, Failure> {
    let given =
        options::anywhere(OPTIONS, given).map_err(|fault| Failure::Usage(format!("copal sim: {fault}\n")))?;
    let mut caches = caches(&given).map_err(Failure::Text)?;
    let mut count = Count::default();
    match (given.get('g'), &given.operands[..]) {
        (None, []) => return Err(Failure::Usage(String::new())),
        (Some(recipe), []) => {
            let recipe =
                Recipe::parse(recipe).map_err(|fault| Failure::Text(format!("--generate: {fault}")))?;
            Trace::new(recipe).for_each(|request| answer(&request, &mut caches, &mut count));
        }
        (Some(_), _) => return Err(Failure::Usage("copal sim: a file and --generate\n".to_owned())),
        (None, files) => {
            let mut sizes = HashMap::new();
            for path in files {
                let fault = |error| Failure::Text(format!("{path}: {}", reason(&error)));
                let input = open(path).map_err(fault)?;
                read(path, input, &mut sizes, &mut caches, &mut count).map_err(fault)?;
            }
        }
    }
    if count.requests == 0 {
        return Err(Failure::Text(format!("nothing to be simulated: {}", count.words())));
    }
    let mut output = Output::standard();
    let text = match given.has('j') {
        true => format!("{:#}\n", report::json(&count, &caches)),
        false => report::table(&count, &caches),
    };
    output.write(text.as_bytes())?;
    output.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A cache for each size and policy.
fn caches(given: &Given) -> Result<Vec<Cache>, String> {
    let interval = given
        .get('i')
        .map_or(Ok(2.0), |text| parse_duration(text).map_err(|fault| format!("-i: {fault}")))?;
    let overhead =
        given.get('o').map_or(Ok(0), |text| parse_bytes(text).map_err(|fault| format!("-o: {fault}")))?;
    let rules = Rules { interval: interval as u32, overhead };
    let policies = match given.get('p') {
        None => Policy::ALL.to_vec(),
        Some(text) => text.split(',').map(policy).collect::<Result<_, _>>()?,
    };
    let sizes = given.get('s').unwrap_or("1G").split(',').map(parse_bytes).collect::<Result<Vec<_>, _>>()?;
    if sizes.len() * policies.len() > CACHES_MAX {
        return Err(format!("more than {CACHES_MAX} caches"));
    }
    let cache = |size| policies.iter().map(move |policy| Cache::new(*policy, size, rules));
    Ok(sizes.into_iter().flat_map(cache).collect())
}

fn policy(name: &str) -> Result<Policy, String> {
    Policy::named(name).ok_or_else(|| format!("\"{name}\" is none of {}", Policy::NAMES.join(", ")))
}

fn open(path: &str) -> io::Result<Box<dyn BufRead>> {
    const BUFFER: usize = 256 << 10;
    Ok(match path {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(BufReader::with_capacity(BUFFER, File::open(path)?)),
    })
}

/// Gives the requests of one file to all caches. `sizes` has those that were told, for requests that do not.
fn read(
    path: &str,
    input: impl BufRead,
    sizes: &mut HashMap<u64, u64>,
    caches: &mut [Cache],
    count: &mut Count,
) -> io::Result<()> {
    let (mut lines, mut reader, mut number) = (Lines::new(input), Reader::default(), 0);
    while let Some(line) = lines.next()? {
        number += 1;
        match line.map_or(Said::Bad, |line| reader.line(line)) {
            Said::Asked(asked) => match size_of_asked(&asked, reader.may_lack_sizes(), sizes) {
                Some(size) => {
                    let Asked { key, second, .. } = asked;
                    answer(&Request { key, size, second }, caches, count);
                }
                None => count.left_out += 1,
            },
            Said::Nothing(Why::NotCached) => count.left_out += 1,
            Said::Nothing(Why::NoRequest) => {}
            Said::Bad => {
                count.bad += 1;
                count.first_bad.get_or_insert_with(|| (path.to_owned(), number));
            }
        }
    }
    Ok(())
}

fn size_of_asked(asked: &Asked, keep: bool, sizes: &mut HashMap<u64, u64>) -> Option<u64> {
    match asked.size {
        Some(size) => {
            if keep {
                sizes.insert(asked.key, size);
            }
            Some(size)
        }
        None => sizes.get(&asked.key).copied(),
    }
}

fn answer(request: &Request, caches: &mut [Cache], count: &mut Count) {
    count.requests += 1;
    caches.iter_mut().for_each(|cache| cache.request(request));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn given(line: &str) -> Given {
        let words = line.split_whitespace().map(OsString::from).collect();
        options::anywhere(OPTIONS, &options::parse(OPTIONS, words).unwrap()).unwrap()
    }

    #[test]
    fn a_log_with_known_answers() {
        let log = br#"
1.1.1.1 - - [22/Nov/2026:10:00:00 +0000] "GET http://e/a HTTP/1.1" 200 100 "-" "-"
1.1.1.1 - - [22/Nov/2026:10:00:00 +0000] "GET http://e/b HTTP/1.1" 304 - "-" "-"
1.1.1.1 - - [22/Nov/2026:10:00:01 +0000] "GET http://e/a HTTP/1.1" 304 - "-" "-"
cut off, here
1.1.1.1 - - [22/Nov/2026:10:00:02 +0000] "POST http://e/a HTTP/1.1" 200 5 "-" "-"
1.1.1.1 - - [22/Nov/2026:10:00:03 +0000] "GET http://e/b HTTP/1.1" 200 100 "-" "-"
1.1.1.1 - - [22/Nov/2026:10:00:04 +0000] "GET http://e/c HTTP/1.1" 200 100 "-" "-"
1.1.1.1 - - [22/Nov/2026:10:00:05 +0000] "GET http://e/a HTTP/1.1" 200 100 "-" "-"
and again
"#;
        let mut caches = caches(&given("--size 200,1k --policy lru,s3fifo x")).unwrap();
        let (mut count, mut sizes) = (Count::default(), HashMap::new());
        read("log", &log[..], &mut sizes, &mut caches, &mut count).unwrap();
        assert_eq!(count, Count { requests: 5, left_out: 2, bad: 2, first_bad: Some(("log".to_owned(), 5)) });
        let json = report::json(&count, &caches);
        // At 200 bytes, a was used when c comes, and b has to go.
        let hits: Vec<_> =
            json["results"].as_array().unwrap().iter().map(|one| one["hits"].as_u64()).collect();
        assert_eq!(hits, [Some(2); 4]);
        assert_eq!(json["first_bad_line"], 5);
        let text = "requests: 5, left out (not cacheable, or of unknown size): 2, lines not readable: 2 (the first is line 5 of log)

policy         size     requests hit ratio byte hit ratio  bytes written
lru            200b            5    0.4000         0.4000            300
s3fifo         200b            5    0.4000         0.4000            300
lru              1k            5    0.4000         0.4000            300
s3fifo           1k            5    0.4000         0.4000            300
";
        assert_eq!(report::table(&count, &caches), text);
    }

    #[test]
    fn options_that_will_not_do() {
        let fault = |line| caches(&given(line)).err().unwrap_or_default();
        assert_eq!(fault("-s 1x"), "unknown unit in size \"1x\" (use b, k, m, g, t or p)");
        assert_eq!(fault("-p lru,fifo"), "\"fifo\" is none of lru, s3fifo, sieve");
        assert_eq!(fault("-i x"), "-i: \"x\" is not a duration");
        assert_eq!(caches(&given("-s 1G,4G")).unwrap().len(), 2 * Policy::ALL.len());
    }
}
