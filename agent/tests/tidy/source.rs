//! A source file taken apart as far as the house rules need it: code without comments and texts, texts alone, code
//! without tests, paths named. It knows tokens, not grammar, and must not know any rule.

/// One Rust file of the repository.
pub struct Source {
    /// Path from the root of the repository, with `/`.
    pub path: String,
    /// The file as it is.
    pub text: String,
    /// The file with the inside of comments and literals made blank; same lines, same columns.
    pub code: String,
    /// What literals hold, with the line (from 1) where each begins; those in tests are absent.
    pub literals: Vec<(usize, String)>,
    /// `code` with every item under `#[cfg(test)]` made blank too.
    pub shipped: String,
}

impl Source {
    pub fn new(path: &str, text: &str) -> Self {
        let (code, all_literals) = blank(text);
        let shipped = without_tests(&code);
        let shipped_lines: Vec<&str> = shipped.lines().collect();
        let in_shipped = |line: &usize| shipped_lines.get(*line - 1).is_some_and(|text| !text.trim().is_empty());
        let literals = all_literals.into_iter().filter(|(line, _)| in_shipped(line)).collect();
        Self { path: path.into(), text: text.into(), code, literals, shipped }
    }

    /// Every path that the shipped code names, `use` trees spread out: `use a::{b, c::d}` is `a::b` and `a::c::d`.
    pub fn paths(&self) -> Vec<(usize, String)> {
        paths(&self.shipped)
    }
}

/// The code with comments and literals blank, and the literals. The quotes stay, so that a text is still seen as one.
fn blank(text: &str) -> (String, Vec<(usize, String)>) {
    let chars: Vec<char> = text.chars().collect();
    let (mut code, mut literals, mut at, mut line) = (String::new(), Vec::new(), 0, 1);
    while at < chars.len() {
        let end = token_end(&chars, at);
        let token: String = chars[at..end].iter().collect();
        let is_comment = token.starts_with("//") || token.starts_with("/*");
        let is_text = !is_comment && token.contains('"');
        if is_text {
            literals.push((line, token.clone()));
        }
        let is_code = token.chars().count() == 1;
        code.extend(token.chars().map(|c| if is_code || c == '\n' || (is_text && c == '"') { c } else { ' ' }));
        line += token.matches('\n').count();
        at = end;
    }
    (code, literals)
}

/// Where the comment, literal or single character that begins at `at` ends.
fn token_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let starts = |what: &str| what.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    let inside_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let length = if starts("//") {
        rest.iter().position(|c| *c == '\n').unwrap_or(rest.len())
    } else if starts("/*") {
        block_comment(rest)
    } else if starts("\"") || (!inside_word && (starts("b\"") || starts("c\""))) {
        quoted(rest)
    } else if !inside_word && (starts("r\"") || starts("r#") || starts("br\"") || starts("br#")) {
        raw(rest)
    } else if starts("'") {
        character(rest)
    } else {
        1
    };
    at + length.clamp(1, rest.len())
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < rest.len() {
        match (rest[i], rest.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            break;
        }
    }
    i
}

fn quoted(rest: &[char]) -> usize {
    let mut i = rest.iter().position(|c| *c == '"').unwrap_or(0) + 1;
    while i < rest.len() && rest[i] != '"' {
        i += if rest[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// `r#"…"#` with any number of `#`; a raw identifier (`r#type`) is one character, the rest is code.
fn raw(rest: &[char]) -> usize {
    let prefix = rest.iter().take_while(|c| matches!(c, 'b' | 'r' | '#')).count();
    if rest.get(prefix) != Some(&'"') {
        return 1;
    }
    let hashes = rest[..prefix].iter().filter(|c| **c == '#').count();
    let closes = |i: &usize| rest[*i] == '"' && rest[*i + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    (prefix + 1..rest.len()).find(closes).map_or(rest.len(), |i| i + 1 + hashes)
}

/// `'x'` or `'\n'`; a lifetime (`'a`) is one character, the rest is code.
fn character(rest: &[char]) -> usize {
    if rest.get(1) == Some(&'\\') {
        return rest.iter().skip(3).position(|c| *c == '\'').map_or(1, |i| i + 4);
    }
    if rest.get(2) == Some(&'\'') { 3 } else { 1 }
}

/// Makes blank what follows `#[cfg(test)]`, up to the end of the item.
fn without_tests(code: &str) -> String {
    const MARK: &str = "#[cfg(test)]";
    let mut bytes = code.as_bytes().to_vec();
    let mut from = 0;
    while let Some(start) = code[from..].find(MARK).map(|i| from + i) {
        let end = item_end(code.as_bytes(), start + MARK.len());
        bytes[start..end].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        from = end;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where the item that begins at `start` ends: behind its closing brace, or behind a semicolon outside of brackets.
pub fn item_end(code: &[u8], start: usize) -> usize {
    let (mut braces, mut brackets) = (0, 0);
    for (i, byte) in code.iter().enumerate().skip(start) {
        match byte {
            b'{' => braces += 1,
            b'(' | b'[' => brackets += 1,
            b')' | b']' => brackets -= 1,
            b'}' if braces <= 1 => return i + 1,
            b'}' => braces -= 1,
            b';' if braces == 0 && brackets == 0 => return i + 1,
            _ => {}
        }
    }
    code.len()
}

fn paths(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // Prefixes of the open braces of a `use` tree; empty outside one.
    let (mut prefixes, mut path, mut in_use) = (Vec::<String>::new(), String::new(), false);
    for (line, token) in tokens(code) {
        match token.as_str() {
            "use" => (in_use, path) = (true, String::new()),
            "::" => path.push_str("::"),
            "{" if in_use => prefixes.push(std::mem::take(&mut path)),
            "as" if in_use => path.push(' '),
            word if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                if !path.is_empty() && !path.ends_with("::") && !path.ends_with(' ') {
                    path.clear();
                }
                if !path.ends_with(' ') {
                    path.push_str(word);
                    // A path is noted at each of its words, so that no end of it has to be found.
                    found.push((line, prefixes.concat() + &path));
                }
            }
            "}" if in_use => drop((prefixes.pop(), std::mem::take(&mut path))),
            ";" => (in_use, path) = (false, String::new()),
            _ => path.clear(),
        }
    }
    found
}

/// Words, `::` and single signs, each with its line.
fn tokens(code: &str) -> Vec<(usize, String)> {
    let mut all: Vec<(usize, String)> = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            let length = if word > 0 {
                word
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            all.push((number + 1, rest[..length].to_owned()));
            rest = rest[length..].trim_start();
        }
    }
    all
}

#[test]
fn comments_and_texts_are_not_code() {
    let source =
        Source::new("a.rs", "let a = \"b.unwrap()\"; // c.unwrap()\n/* d /* e */ f */ g('\"', 'x', \"\\\"h\");\n");
    assert!(!source.code.contains("unwrap") && !source.code.contains('f') && !source.code.contains('h'));
    assert!(source.code.contains("g(") && source.code.contains("let a"));
    assert_eq!(source.text.lines().count(), source.code.lines().count());
}

#[test]
fn raw_texts_and_lifetimes_are_told_apart() {
    let source = Source::new("a.rs", "fn a<'a>(b: &'a str) -> r#type { r#\"c\" d\"#; e }");
    assert_eq!(source.literals, [(1, "r#\"c\" d\"#".to_owned())]);
    assert!(source.code.contains("fn a<'a>(b: &'a str) -> r#type {") && source.code.ends_with("; e }"));
}

#[test]
fn tests_are_not_shipped() {
    let source = Source::new(
        "a.rs",
        "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() { c(\"d\") }\n}\n#[cfg(test)]\nuse e;\nfn f() {}",
    );
    assert!(source.shipped.contains("fn a") && source.shipped.contains("fn f"));
    assert!(!source.shipped.contains('b') && !source.shipped.contains('e') && source.literals.is_empty());
}

#[test]
fn a_tree_of_uses_is_spread_out() {
    let named = |code: &str| paths(code).into_iter().map(|(_, path)| path).collect::<Vec<_>>();
    let all = named("use a::{b, c::{d, e as f}, g};\nh::i(); j.k::<l::m>();");
    for path in ["a::b", "a::c::d", "a::c::e", "a::g", "h::i", "l::m"] {
        assert!(all.contains(&path.to_owned()), "{path} is not in {all:?}");
    }
    assert!(!all.iter().any(|path| path.ends_with("::f") || path == "f"), "{all:?}");
}
