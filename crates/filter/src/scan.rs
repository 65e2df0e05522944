//! Where the blocks of a gzip stream begin and end, to the bit, without expanding it.
//!
//! Two things need that. Joining compressed bodies to one stream (ESI) takes the mark off each part's last block, which
//! lies at any bit of a byte. And the log tells where the last block of a stream is. A decompressor keeps both to itself.
//!
//! The stream is taken in pieces of any size; between them less than nine bytes are remembered besides the code tables.
//! Nothing is checked beyond what is needed to follow the codes: whether distances and checksums are right, is for who
//! expands it.
//!
//! ```text
//! header > block head > stored bytes ------------+> block head ... > end
//!               |                                 |
//!               +> (code lengths >) codes --------+
//! ```
//!
//! Source: RFC 1951, RFC 1952.

/// Longest code, in bits.
const CODE_MAX: usize = 15;

/// Codes up to this many bits are found in one step.
const FAST: u32 = 10;

/// Symbols for literals and lengths.
const LITERALS: usize = 288;

/// Symbols for distances.
const DISTANCES: usize = 32;

/// Extra bits and least length of the symbols from 257.
const LENGTHS: [(u8, u16); 29] = [
    (0, 3),
    (0, 4),
    (0, 5),
    (0, 6),
    (0, 7),
    (0, 8),
    (0, 9),
    (0, 10),
    (1, 11),
    (1, 13),
    (1, 15),
    (1, 17),
    (2, 19),
    (2, 23),
    (2, 27),
    (2, 31),
    (3, 35),
    (3, 43),
    (3, 51),
    (3, 59),
    (4, 67),
    (4, 83),
    (4, 99),
    (4, 115),
    (5, 131),
    (5, 163),
    (5, 195),
    (5, 227),
    (0, 258),
];

/// The order in which the lengths of the code for code lengths stand.
const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];

/// The gzip header's flags that say what follows it.
const HEADER_CRC: u8 = 2;
const EXTRA: u8 = 4;
const NAME: u8 = 8;
const COMMENT: u8 = 16;

/// Bit positions in a gzip stream, counted from its first byte. Zero where not reached yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bits {
    /// The first block.
    pub start: u64,
    /// The head of the newest block; at the end of the stream, of its last: its first bit is the mark of the last.
    pub last: u64,
    /// The first bit after the last block.
    pub stop: u64,
}

/// A Huffman code, to be followed from its first bit.
struct Code {
    /// By the next [`FAST`] bits: symbol * 16 + length; 0 for a longer code or none.
    fast: Box<[u16]>,
    /// How many codes there are of each length.
    counts: [u16; CODE_MAX + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; LITERALS],
}

impl Code {
    fn new() -> Self {
        Self {
            fast: vec![0; 1 << FAST].into_boxed_slice(),
            counts: [0; CODE_MAX + 1],
            symbols: [0; LITERALS],
        }
    }

    /// Takes the code with these lengths. A code with more symbols than lengths allow is refused; an incomplete one is
    /// taken, since a decompressor that allows it in some cases decides that.
    fn set(&mut self, lengths: &[u8]) -> bool {
        self.counts = [0; CODE_MAX + 1];
        for length in lengths {
            self.counts[usize::from(*length)] += 1;
        }
        self.counts[0] = 0;
        let mut left = 1i32;
        let mut offsets = [0u16; CODE_MAX + 2];
        let mut firsts = [0u16; CODE_MAX + 2];
        for length in 1..=CODE_MAX {
            left = (left << 1) - i32::from(self.counts[length]);
            if left < 0 {
                return false;
            }
            offsets[length + 1] = offsets[length] + self.counts[length];
            // Cannot overflow where codes are left; where none are, it is not used.
            firsts[length + 1] = (firsts[length] + self.counts[length]).wrapping_shl(1);
        }
        self.fast.fill(0);
        for (symbol, length) in lengths.iter().enumerate() {
            let bits = usize::from(*length);
            if bits == 0 {
                continue;
            }
            self.symbols[usize::from(offsets[bits])] = symbol as u16;
            offsets[bits] += 1;
            let code = firsts[bits];
            firsts[bits] = code.wrapping_add(1);
            if bits as u32 <= FAST {
                // Codes stand in the stream from their highest bit.
                let low = usize::from(code.reverse_bits() >> (16 - bits));
                for index in (low..1 << FAST).step_by(1 << bits) {
                    self.fast[index] = (symbol as u16) << 4 | u16::from(*length);
                }
            }
        }
        true
    }

    /// The symbol that `bits` begin with, `count` of which are valid, and the length of its code.
    fn find(&self, bits: u64, count: u32) -> Found {
        let entry = self.fast[(bits & ((1 << FAST) - 1)) as usize];
        let length = u32::from(entry & 15);
        if entry != 0 {
            return if length <= count { Found::Symbol(entry >> 4, length) } else { Found::More };
        }
        let (mut code, mut first, mut index) = (0i32, 0i32, 0i32);
        for length in 1..=CODE_MAX as u32 {
            if length > count {
                return Found::More;
            }
            code |= (bits >> (length - 1) & 1) as i32;
            let codes = i32::from(self.counts[length as usize]);
            if code - codes < first {
                return Found::Symbol(self.symbols[(index + code - first) as usize], length);
            }
            index += codes;
            first = (first + codes) << 1;
            code <<= 1;
        }
        Found::None
    }
}

/// What stands at the front of the bits.
enum Found {
    Symbol(u16, u32),
    /// More bits are needed to tell.
    More,
    /// No code begins like this.
    None,
}

/// What is read next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The ten fixed bytes of the header; the number read.
    Header(u8),
    /// The length of the extra field, then its bytes.
    ExtraLength,
    Extra(u16),
    /// A text that a zero ends: the flag it belongs to.
    Text(u8),
    HeaderCrc,
    BlockMark,
    BlockType,
    StoredLength,
    Stored(u16),
    CodeCounts,
    /// Lengths of the code for code lengths: the number read.
    LengthCode(usize),
    /// Code lengths: the number read.
    CodeLengths(usize),
    Literal,
    /// After a length: its distance.
    Distance,
    /// These extra bits are passed over.
    DistanceExtra(u32),
    End,
    Broken,
}

/// A reader of a gzip stream's structure. See the module.
pub struct Scan {
    state: State,
    flags: u8,
    /// Bits taken from the input but not used, from the lowest.
    hold: u64,
    held: u32,
    /// Bytes taken from the input.
    taken: u64,
    is_last: bool,
    bits: Bits,
    /// Bytes the stream expands to, as far as it was read.
    expanded: u64,
    literals: Code,
    distances: Code,
    counts: (usize, usize, usize),
    lengths: [u8; LITERALS + DISTANCES],
}

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// A reader at the beginning of a stream.
    pub fn new() -> Self {
        Self {
            state: State::Header(0),
            flags: 0,
            hold: 0,
            held: 0,
            taken: 0,
            is_last: false,
            bits: Bits::default(),
            expanded: 0,
            literals: Code::new(),
            distances: Code::new(),
            counts: (0, 0, 0),
            lengths: [0; LITERALS + DISTANCES],
        }
    }

    /// What was found so far.
    pub fn bits(&self) -> Bits {
        self.bits
    }

    /// Whether the last block's head was read.
    pub fn in_last_block(&self) -> bool {
        self.is_last
    }

    /// Whether the last block was read to its end.
    pub fn is_at_end(&self) -> bool {
        self.state == State::End
    }

    /// Whether it is no gzip stream: nothing more will be found.
    pub fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Bytes that what was read expands to.
    pub fn expanded(&self) -> u64 {
        self.expanded
    }

    /// Reads on in `input`. Returns how much of it belongs to the header and the blocks: all of it, until the last block
    /// ends.
    pub fn feed(&mut self, input: &[u8]) -> usize {
        let mut rest = input;
        while !matches!(self.state, State::End | State::Broken) {
            let before = self.state;
            let held = (self.held, rest.len());
            self.step(&mut rest);
            if self.state == before && held == (self.held, rest.len()) {
                break;
            }
        }
        if self.state == State::End {
            // Whole bytes that were taken beyond the end are not ours.
            let extra = (self.held / 8) as usize;
            self.held %= 8;
            self.taken -= extra as u64;
            return (input.len() - rest.len()).saturating_sub(extra);
        }
        input.len()
    }

    /// Where the next unused bit is.
    fn position(&self) -> u64 {
        self.taken * 8 - u64::from(self.held)
    }

    /// Whether `count` bits are there, taking what is needed from `rest`.
    fn need(&mut self, count: u32, rest: &mut &[u8]) -> bool {
        while self.held < count {
            let Some((byte, more)) = rest.split_first() else { return false };
            self.hold |= u64::from(*byte) << self.held;
            self.held += 8;
            self.taken += 1;
            *rest = more;
        }
        true
    }

    fn drop_bits(&mut self, count: u32) {
        self.hold >>= count;
        self.held -= count;
    }

    fn take(&mut self, count: u32) -> u64 {
        let value = self.hold & ((1 << count) - 1);
        self.drop_bits(count);
        value
    }

    fn step(&mut self, rest: &mut &[u8]) {
        let state = self.state;
        match state {
            State::Header(_) | State::ExtraLength | State::Extra(_) | State::Text(_) | State::HeaderCrc => {
                self.header(rest);
            }
            State::BlockMark | State::BlockType | State::StoredLength | State::Stored(_) => self.block(rest),
            State::CodeCounts | State::LengthCode(_) | State::CodeLengths(_) => self.codes(rest),
            State::Literal | State::Distance | State::DistanceExtra(_) => self.data(rest),
            State::End | State::Broken => {}
        }
    }

    fn header(&mut self, rest: &mut &[u8]) {
        let wanted = if matches!(self.state, State::ExtraLength | State::HeaderCrc) { 16 } else { 8 };
        if !self.need(wanted, rest) {
            return;
        }
        let value = self.take(wanted);
        let byte = value as u8;
        let state = self.state;
        match state {
            State::Header(index) => {
                let fits = match index {
                    0 => byte == 0x1f,
                    1 => byte == 0x8b,
                    2 => byte == 8,
                    _ => true,
                };
                if index == 3 {
                    self.flags = byte;
                }
                self.state = match (fits, index) {
                    (false, _) => State::Broken,
                    (true, 9) => self.after_header(EXTRA),
                    (true, _) => State::Header(index + 1),
                };
            }
            State::ExtraLength if value == 0 => self.state = self.after_header(NAME),
            State::ExtraLength => self.state = State::Extra(value as u16),
            State::Extra(1) => self.state = self.after_header(NAME),
            State::Extra(left) => self.state = State::Extra(left - 1),
            State::Text(NAME) if byte == 0 => self.state = self.after_header(COMMENT),
            State::Text(_) if byte == 0 => self.state = self.after_header(HEADER_CRC),
            State::Text(_) => {}
            _ => self.state = self.after_header(0),
        }
    }

    /// The first part of the header from `flag` on that is there, else the first block.
    fn after_header(&mut self, flag: u8) -> State {
        let parts = [
            (EXTRA, State::ExtraLength),
            (NAME, State::Text(NAME)),
            (COMMENT, State::Text(COMMENT)),
            (HEADER_CRC, State::HeaderCrc),
        ];
        let from = parts.iter().position(|(part, _)| *part == flag).unwrap_or(parts.len());
        let next = parts[from..].iter().find(|(part, _)| self.flags & part != 0).map(|(_, state)| *state);
        next.unwrap_or_else(|| {
            self.bits.start = self.position();
            State::BlockMark
        })
    }

    fn block(&mut self, rest: &mut &[u8]) {
        let state = self.state;
        match state {
            // One bit by itself: its byte is then in the piece that is being read.
            State::BlockMark if self.need(1, rest) => {
                self.bits.last = self.position();
                self.is_last = self.take(1) == 1;
                self.state = State::BlockType;
            }
            State::BlockType if self.need(2, rest) => {
                self.state = match self.take(2) {
                    0 => {
                        self.drop_bits(self.held % 8);
                        State::StoredLength
                    }
                    1 => self.fixed(),
                    2 => State::CodeCounts,
                    _ => State::Broken,
                };
            }
            State::StoredLength if self.need(32, rest) => {
                let (length, complement) = (self.take(16) as u16, self.take(16) as u16);
                self.state = match length {
                    _ if length != !complement => State::Broken,
                    0 => self.end_block(),
                    _ => State::Stored(length),
                };
            }
            State::Stored(left) => {
                // Bytes that are held already go first.
                let count = if self.held > 0 {
                    self.drop_bits(8);
                    1
                } else {
                    let count = rest.len().min(usize::from(left));
                    *rest = &rest[count..];
                    self.taken += count as u64;
                    count as u16
                };
                self.expanded += u64::from(count);
                self.state = if count == left { self.end_block() } else { State::Stored(left - count) };
            }
            _ => {}
        }
    }

    fn end_block(&mut self) -> State {
        if !self.is_last {
            return State::BlockMark;
        }
        self.bits.stop = self.position();
        State::End
    }

    /// The code that needs no description (RFC 1951, section 3.2.6).
    fn fixed(&mut self) -> State {
        let mut lengths = [8; LITERALS];
        lengths[144..256].fill(9);
        lengths[256..280].fill(7);
        let fits = self.literals.set(&lengths) && self.distances.set(&[5; DISTANCES]);
        if fits { State::Literal } else { State::Broken }
    }

    fn codes(&mut self, rest: &mut &[u8]) {
        let state = self.state;
        match state {
            State::CodeCounts if self.need(14, rest) => {
                let (literals, distances) = (self.take(5) as usize + 257, self.take(5) as usize + 1);
                self.counts = (literals, distances, self.take(4) as usize + 4);
                self.lengths = [0; LITERALS + DISTANCES];
                let fits = literals <= 286 && distances <= 30;
                self.state = if fits { State::LengthCode(0) } else { State::Broken };
            }
            State::LengthCode(index) => {
                if index == self.counts.2 {
                    let lengths: [u8; 19] = self.lengths[..19].try_into().expect("there are more than 19");
                    self.lengths[..19].fill(0);
                    let fits = self.literals.set(&lengths);
                    self.state = if fits { State::CodeLengths(0) } else { State::Broken };
                } else if self.need(3, rest) {
                    self.lengths[ORDER[index]] = self.take(3) as u8;
                    self.state = State::LengthCode(index + 1);
                }
            }
            State::CodeLengths(index) => self.code_length(index, rest),
            _ => {}
        }
    }

    fn code_length(&mut self, index: usize, rest: &mut &[u8]) {
        let (literals, distances, _) = self.counts;
        let total = literals + distances;
        if index >= total {
            let (first, second) = self.lengths.split_at(literals);
            let fits = self.literals.set(first) && self.distances.set(&second[..distances]);
            self.state = if fits { State::Literal } else { State::Broken };
            return;
        }
        // The longest of these codes has 7 bits, and 7 more may follow it.
        let Some((symbol, used)) = self.symbol(Which::Literals, 7, rest) else { return };
        let extra = match symbol {
            0..=15 => 0,
            16 => 2,
            17 => 3,
            _ => 7,
        };
        if !self.need(used + extra, rest) {
            return;
        }
        self.drop_bits(used);
        let more = self.take(extra) as usize;
        let (value, count) = match symbol {
            0..=15 => (symbol as u8, 1),
            16 if index == 0 => return self.state = State::Broken,
            16 => (self.lengths[index - 1], more + 3),
            17 => (0, more + 3),
            _ => (0, more + 11),
        };
        if index + count > total {
            return self.state = State::Broken;
        }
        self.lengths[index..index + count].fill(value);
        self.state = State::CodeLengths(index + count);
    }

    /// The next symbol, and how many bits its code has; they are not taken yet. Nothing if more input is needed.
    fn symbol(&mut self, which: Which, longest: u32, rest: &mut &[u8]) -> Option<(u16, u32)> {
        loop {
            let code = if which == Which::Literals { &self.literals } else { &self.distances };
            match code.find(self.hold, self.held) {
                Found::Symbol(symbol, length) => return Some((symbol, length)),
                Found::None => {
                    self.state = State::Broken;
                    return None;
                }
                Found::More => {}
            }
            if self.held >= longest {
                self.state = State::Broken;
                return None;
            }
            // Only as many bytes as the code needs: the end of the stream is found to the byte.
            if !self.need((self.held / 8 + 1) * 8, rest) {
                return None;
            }
        }
    }

    fn data(&mut self, rest: &mut &[u8]) {
        let state = self.state;
        match state {
            State::Literal => self.literal(rest),
            State::Distance => {
                let Some((symbol, used)) = self.symbol(Which::Distances, 15, rest) else { return };
                self.drop_bits(used);
                self.state = match symbol {
                    0..=3 => State::Literal,
                    4..=29 => State::DistanceExtra(u32::from(symbol) / 2 - 1),
                    _ => State::Broken,
                };
            }
            State::DistanceExtra(count) if self.need(count, rest) => {
                self.drop_bits(count);
                self.state = State::Literal;
            }
            _ => {}
        }
    }

    fn literal(&mut self, rest: &mut &[u8]) {
        loop {
            let Some((symbol, used)) = self.symbol(Which::Literals, 15, rest) else { return };
            match symbol {
                0..=255 => {
                    self.drop_bits(used);
                    self.expanded += 1;
                }
                256 => {
                    self.drop_bits(used);
                    return self.state = self.end_block();
                }
                _ => {
                    let Some((extra, least)) = LENGTHS.get(usize::from(symbol) - 257) else {
                        return self.state = State::Broken;
                    };
                    if !self.need(used + u32::from(*extra), rest) {
                        return;
                    }
                    self.drop_bits(used);
                    self.expanded += u64::from(*least) + self.take(u32::from(*extra));
                    return self.state = State::Distance;
                }
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Literals,
    Distances,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{gzip, noise};
    use super::*;
    use proptest::prelude::*;

    fn scan(stream: &[u8], chop: usize) -> (Scan, usize) {
        let mut scan = Scan::new();
        let mut used = 0;
        for piece in stream.chunks(chop.max(1)) {
            used += scan.feed(piece);
        }
        (scan, used)
    }

    fn check(plain: &[u8], level: i32, chop: usize) {
        let stream = gzip(plain, level);
        let (scan, used) = scan(&stream, chop);
        assert!(scan.is_at_end(), "{} bytes at level {level} in pieces of {chop}", plain.len());
        assert_eq!(used, stream.len() - 8);
        assert_eq!(scan.expanded(), plain.len() as u64);
        let bits = scan.bits();
        assert_eq!(bits.start, 80);
        assert_eq!(bits.stop.div_ceil(8) as usize, used);
        assert_eq!(stream[(bits.last / 8) as usize] >> (bits.last % 8) & 1, 1, "the last block is marked");
    }

    #[test]
    fn finds_the_blocks_of_all_kinds() {
        for chop in [1, 2, 3, 7, 1000, usize::MAX] {
            for level in [0, 1, 6, 9] {
                for plain in [&b""[..], b"bar", &[b'a'; 70_000], &noise(100_000), &b"abc".repeat(30_000)] {
                    check(plain, level, chop);
                }
            }
        }
    }

    #[test]
    fn positions_are_those_that_varnish_logs() {
        let (found, _) = scan(&gzip(b"bar", 6), 1);
        assert_eq!(found.bits(), Bits { start: 80, last: 80, stop: 114 });
    }

    #[test]
    fn rfc1952_2_3_parts_of_the_header() {
        let bare = gzip(b"bar", 6);
        let mut stream = bare[..10].to_vec();
        stream[3] = HEADER_CRC | EXTRA | NAME | COMMENT;
        stream.extend_from_slice(b"\x02\x00xyname\0comment\0cc");
        let start = stream.len() as u64 * 8;
        stream.extend_from_slice(&bare[10..]);
        for chop in 1..20 {
            let (found, _) = scan(&stream, chop);
            assert_eq!(found.bits(), Bits { start, last: start, stop: start + 34 });
        }
    }

    proptest! {
        #[test]
        fn never_panics(stream in prop::collection::vec(any::<u8>(), 0..200), chop in 1usize..20, head: bool) {
            let mut bytes = if head { gzip(b"", 6)[..10].to_vec() } else { Vec::new() };
            bytes.extend_from_slice(&stream);
            let (_, used) = scan(&bytes, chop);
            prop_assert!(used <= bytes.len());
        }

        #[test]
        fn a_flipped_bit_does_not_panic(at in 80usize..2000, chop in 1usize..50) {
            let mut stream = gzip(&noise(300).repeat(3), 9);
            let at = at % (stream.len() * 8);
            stream[at / 8] ^= 1 << (at % 8);
            let (found, used) = scan(&stream, chop);
            let (whole, all) = scan(&stream, usize::MAX);
            prop_assert_eq!((found.bits(), found.expanded(), used), (whole.bits(), whole.expanded(), all));
        }
    }
}
