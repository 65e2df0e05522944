//! The filters of one fetch: which they are, and what they do to the response's head.

use super::log::FetchLog;
use super::state::Fetch;
use copal_filter as filter;
use copal_observe as observe;
use copal_store as store;
use copal_vcl as vcl;
use copal_wire as wire;
use filter::esi::fetch::Esi;
use filter::esi::parse::Options;
use filter::gunzip::Gunzip;
use filter::gzip::{Compressor, Gzip};
use filter::names::{self, Coding, Fetching, Wishes};
use filter::{Chain, Failure, Notes, head};
use observe::Tag;
use std::fmt;
use store::Flags;
use vcl::value::Text;
use wire::Known;

/// The filters of one response's body.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    pub(crate) chain: Chain,
    /// The object's flags that say how its body is coded.
    pub(crate) flags: u8,
    /// The body is parsed for ESI: it can be delivered only when it is complete.
    pub(crate) parses: bool,
}

impl Notes for FetchLog {
    fn record(&mut self, tag: Tag, text: fmt::Arguments<'_>) {
        self.records.fmt(tag, text);
    }

    fn esi_error(&mut self) {
        self.local.counters.esi_errors.inc();
    }

    fn esi_warning(&mut self) {
        self.local.counters.esi_warnings.inc();
    }
}

impl Fetch {
    /// `beresp.filters`: as VCL set it, else what is done without.
    pub(crate) fn filter_list(&self) -> Text {
        self.filters.clone().unwrap_or_else(|| names::text(names::of_fetch(&self.wishes())))
    }

    fn wishes(&self) -> Wishes {
        let fields = &self.response.fields;
        let coding = match () {
            () if head::is_gzip(fields) => Coding::Gzip,
            () if fields.has_known(Known::ContentEncoding) => Coding::Other,
            () => Coding::Plain,
        };
        Wishes {
            gzip_support: self.current.settings.http_gzip_support,
            do_esi: self.do_esi,
            do_gzip: self.do_gzip,
            do_gunzip: self.do_gunzip,
            coding,
        }
    }

    /// Opens the filters of a response that has a body.
    ///
    /// # Errors
    /// What to log as the reason why the fetch fails.
    pub(super) fn open_filters(&mut self) -> Result<Filters, String> {
        let was_set = self.filters.is_some();
        if !was_set
            && !self.do_esi
            && !self.do_gzip
            && !self.response.fields.has_known(Known::ContentEncoding)
        {
            // The common case: nothing is asked for, and nothing to do.
            self.log.records.text(Tag::Filters, b"");
            return Ok(Filters::default());
        }
        let list = self.filter_list();
        self.log.records.text(Tag::Filters, &list);
        let mut filters = Filters::default();
        for name in names::fetching(&list).map_err(|unknown| unknown.to_string())? {
            self.open(name, &mut filters).map_err(|failure| failure.to_string())?;
        }
        // Where VCL names the filters, `do_gunzip` is believed rather than a head that says gzip.
        let denied = was_set && self.do_gunzip && filters.flags & Flags::CHECKED == 0;
        if self.response.status != 206 && head::is_gzip(&self.response.fields) && !denied {
            filters.flags |= Flags::GZIPPED;
        } else {
            filters.flags &= !Flags::CHECKED;
        }
        Ok(filters)
    }

    /// Puts one filter into the chain, unless there is nothing for it to do: then it is left out, as in Varnish.
    fn open(&mut self, name: Fetching, filters: &mut Filters) -> Result<(), Failure> {
        let is_part = self.response.status == 206;
        let is_gzip = head::is_gzip(&self.response.fields);
        let is_coded = self.response.fields.has_known(Known::ContentEncoding);
        let logged = self.log.records.wants(Tag::Gzip);
        let counters = &self.local.counters;
        match name {
            Fetching::Gunzip if is_gzip && !is_part => {
                counters.n_gunzip.inc();
                self.set_coding(None);
                filters.flags |= Flags::RECODED;
                filters.chain.push(Box::new(Gunzip::new(logged)));
            }
            Fetching::TestGunzip if is_gzip && !is_part => {
                counters.n_test_gunzip.inc();
                self.vary_by_coding();
                filters.flags |= Flags::CHECKED;
                filters.chain.push(Box::new(Gunzip::test(logged)));
            }
            Fetching::Gzip if !is_coded && !is_part => {
                counters.n_gzip.inc();
                self.set_coding(Some(b"gzip"));
                filters.flags |= Flags::RECODED | Flags::CHECKED;
                let (level, memory) = self.gzip_parameters();
                filters.chain.push(Box::new(Gzip::new(level, memory, logged)));
            }
            Fetching::Esi if is_part => return Err(Failure::Unopened("esi")),
            Fetching::EsiGzip if is_part => return Err(Failure::Unopened("esi_gzip")),
            Fetching::Esi => self.parse(None, filters),
            Fetching::EsiGzip if !is_coded => {
                counters.n_gzip.inc();
                self.set_coding(Some(b"gzip"));
                filters.flags |= Flags::RECODED | Flags::CHECKED;
                let (level, memory) = self.gzip_parameters();
                self.parse(Some(Compressor::new(level, memory, logged)), filters);
            }
            Fetching::EsiGzip => return Err(Failure::Unopened("esi_gzip")),
            Fetching::Gunzip | Fetching::TestGunzip | Fetching::Gzip => {}
        }
        Ok(())
    }

    fn gzip_parameters(&self) -> (u8, u8) {
        let settings = &self.current.settings;
        (settings.gzip_level.min(9) as u8, settings.gzip_memlevel.min(9) as u8)
    }

    fn parse(&mut self, compressor: Option<Compressor>, filters: &mut Filters) {
        let settings = &self.current.settings;
        let features = &settings.features;
        let options = Options {
            any_begin: features.esi_disable_xml_check,
            ignore_https: features.esi_ignore_https,
            ignore_other_elements: features.esi_ignore_other_elements,
            remove_mark: features.esi_remove_bom,
            onerror: features.esi_include_onerror,
        };
        let parser = Esi::new(options, &self.request.target, compressor, features.esi_chop);
        filters.parses = true;
        filters.chain.push(Box::new(parser));
    }

    /// The body is coded otherwise from here on: its length is not known, its tag is that of other bytes.
    fn set_coding(&mut self, coding: Option<&[u8]>) {
        let fields = &mut self.response.fields;
        let records = &mut self.log.records;
        for name in [Known::ContentEncoding, Known::ContentLength] {
            if let Some(value) = fields.get_known(name) {
                records.header(Tag::BerespUnset, name.name().as_bytes(), value);
                fields.remove_known(name);
            }
        }
        if let Some(coding) = coding {
            fields.set_known(Known::ContentEncoding, coding);
            records.header(Tag::BerespHeader, b"Content-Encoding", coding);
        }
        if let Some(strong) = head::weaken(fields) {
            records.header(Tag::BerespUnset, b"ETag", &strong);
            records.header(Tag::BerespHeader, b"ETag", fields.get_known(Known::Etag).unwrap_or_default());
        }
        if coding.is_some() {
            self.vary_by_coding();
        }
    }

    fn vary_by_coding(&mut self) {
        let fields = &mut self.response.fields;
        let old = fields.get_known(Known::Vary).map(<[u8]>::to_vec);
        if head::vary_by_coding(fields) {
            let records = &mut self.log.records;
            if let Some(old) = old {
                records.header(Tag::BerespUnset, b"Vary", &old);
            }
            records.header(Tag::BerespHeader, b"Vary", fields.get_known(Known::Vary).unwrap_or_default());
        }
    }
}
