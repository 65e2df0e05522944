//! Shell patterns over names: `*`, `?`, `[a-z]`, `[!a-z]`, and a backslash before a character that stands for itself.

/// Whether `pattern` matches the whole of `name`. Takes time bounded by the product of the two lengths.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut in_name) = (0, 0);
    // Where to go on when what follows the last star does not match: after the star, one more character skipped.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        if pattern.get(at) == Some(&'*') {
            at += 1;
            retry = Some((at, in_name));
            continue;
        }
        if let Some(next) = one(&pattern, at, name[in_name]) {
            at = next;
            in_name += 1;
            continue;
        }
        match &mut retry {
            Some((after_star, skipped_to)) => {
                *skipped_to += 1;
                (at, in_name) = (*after_star, *skipped_to);
            }
            None => return false,
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

/// Where the pattern goes on after matching `character` at `at`, if it does.
fn one(pattern: &[char], at: usize, character: char) -> Option<usize> {
    match pattern.get(at)? {
        '?' => Some(at + 1),
        '[' => match set(pattern, at, character) {
            Some((inside, next)) => inside.then_some(next),
            // An open bracket without its end stands for itself.
            None => (character == '[').then_some(at + 1),
        },
        '\\' if at + 1 < pattern.len() => (pattern[at + 1] == character).then_some(at + 2),
        &plain => (plain == character).then_some(at + 1),
    }
}

/// Whether the set that opens at `at` has `character`, and where it ends.
fn set(pattern: &[char], at: usize, character: char) -> Option<(bool, usize)> {
    let mut index = at + 1;
    let negated = matches!(pattern.get(index), Some('!' | '^'));
    index += usize::from(negated);
    let first = index;
    let mut inside = false;
    loop {
        let low = *pattern.get(index)?;
        if low == ']' && index > first {
            return Some((inside != negated, index + 1));
        }
        if pattern.get(index + 1) == Some(&'-') && pattern.get(index + 2).is_some_and(|&high| high != ']') {
            inside |= (low..=pattern[index + 2]).contains(&character);
            index += 3;
        } else {
            inside |= low == character;
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("boot", "boot", true),
            ("boot", "boots", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abc", true),
            ("a*c*", "aXcXcd", true),
            ("*ab", "aab", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("", "x", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_end() {
        assert!(!matches(&"*a".repeat(200), &"a".repeat(199)));
    }
}
