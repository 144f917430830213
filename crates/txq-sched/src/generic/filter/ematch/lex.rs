//! The tokens of an expression. A shell may have split it into words anywhere.

use crate::tc::{ParseError, Words};

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Open,
    Close,
    Word(String),
    /// A text in double quotes, its escapes resolved.
    Quoted(Vec<u8>),
}

impl Token {
    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(own) if own.eq_ignore_ascii_case(word))
    }
}

/// Extends `Option<Token>`.
pub(super) trait IsWord {
    /// Whether it is this word, in any case.
    fn is_word(&self, word: &str) -> bool;
}

impl IsWord for Option<Token> {
    fn is_word(&self, word: &str) -> bool {
        self.as_ref().is_some_and(|token| token.is(word))
    }
}

/// Reads tokens from words. It takes no word that it does not need.
pub(super) struct Lexer<'w, 'a> {
    words: &'w mut Words<'a>,
    /// The part of the last word that no token has used.
    rest: &'a str,
}

impl<'w, 'a> Lexer<'w, 'a> {
    pub(super) fn new(words: &'w mut Words<'a>) -> Self {
        Self { words, rest: "" }
    }

    /// Whether the last word is used up.
    pub(super) fn is_between_words(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes the next token; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token>, ParseError> {
        if self.rest.is_empty() {
            match self.words.next_word() {
                Some(word) => self.rest = word,
                None => return Ok(None),
            }
        }
        let rest = self.rest.trim_start();
        Ok(match rest.chars().next() {
            None => {
                self.rest = "";
                return self.next();
            }
            Some('(') => {
                self.rest = &rest[1..];
                Some(Token::Open)
            }
            Some(')') => {
                self.rest = &rest[1..];
                Some(Token::Close)
            }
            Some('"') => {
                self.rest = &rest[1..];
                Some(Token::Quoted(self.quoted()?))
            }
            Some(_) => {
                let end = rest.find(|c: char| "()\"".contains(c) || c.is_whitespace()).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                self.rest = after;
                Some(Token::Word(word.to_owned()))
            }
        })
    }

    /// Takes the next token if it is this word, in any case.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let next =
            if self.rest.is_empty() { self.words.peek().unwrap_or_default() } else { self.rest.trim_start() };
        let end = next.find(|c: char| "()\"".contains(c) || c.is_whitespace()).unwrap_or(next.len());
        let is_it = next[..end].eq_ignore_ascii_case(word);
        if is_it {
            if self.rest.is_empty() {
                self.words.next_word();
            }
            self.rest = &next[end..];
        }
        is_it
    }

    /// Takes a text up to its closing quote. Words are joined by one blank.
    fn quoted(&mut self) -> Result<Vec<u8>, ParseError> {
        let mut bytes = Vec::new();
        loop {
            let mut rest = self.rest.as_bytes();
            while let [first, after @ ..] = rest {
                rest = after;
                match first {
                    b'"' => {
                        // Both halves of the cut are whole characters: a quote is one byte.
                        self.rest = &self.rest[self.rest.len() - rest.len()..];
                        return Ok(bytes);
                    }
                    b'\\' => bytes.push(escape(&mut rest)),
                    byte => bytes.push(*byte),
                }
            }
            match self.words.next_word() {
                Some(word) => self.rest = word,
                None => {
                    let error = ParseError::new("Parse error: syntax error\nIllegal \"ematch\"");
                    return Err(error.with_remedy("close the quotes"));
                }
            }
            bytes.push(b' ');
        }
    }
}

/// Takes what follows a backslash; returns the byte that it means, as in C.
fn escape(rest: &mut &[u8]) -> u8 {
    let digits = |rest: &mut &[u8], radix: u32, most: usize| {
        let is_digit = |byte: &u8| char::from(*byte).is_digit(radix);
        let count = rest.iter().take(most).take_while(|byte| is_digit(byte)).count();
        let (digits, after) = rest.split_at(count);
        *rest = after;
        digits
            .iter()
            .fold(0u32, |value, digit| value * radix + char::from(*digit).to_digit(radix).unwrap_or(0))
    };
    let [first, after @ ..] = *rest else { return b'\\' };
    let whole = *rest;
    *rest = after;
    match first {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'x' => digits(rest, 16, 2) as u8,
        b'0'..=b'7' => {
            *rest = whole;
            digits(rest, 8, 3) as u8
        }
        other => *other,
    }
}
