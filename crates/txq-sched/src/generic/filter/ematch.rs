//! ematch: expressions over a packet, which [`basic`](super::basic) and [`flow`](super::flow) match.
//!
//! An expression is a list of matches and groups, joined by `and` and `or`, each with an optional `not`. As in the kernel
//! (`tcf_em_tree_match`), a list is read from the right: `a and b or c` is `a and (b or c)`. The matches are tc's: `cmp`
//! compares a number in the packet, `u32` a word under a mask, `nbyte` bytes, and `meta` what is known about the packet.
//! Differences: `ipset`, `ipt` and `canid` are missing, and so are the fields of `meta` that belong to sockets, routes and
//! interfaces. tc has no word for the kernel's `text`.

mod cmp;
mod lex;
mod meta;
mod nbyte;
mod u32;

use std::fmt::{self, Write};

use txq_core::arch::Arch;

use super::frame::Frame;
use crate::tc::{ParseError, Words};

use cmp::Cmp;
use lex::{IsWord, Lexer, Token};
use meta::Compare;
use nbyte::Nbyte;
use u32::Word;

/// The most groups inside one another (`CONFIG_NET_EMATCH_STACK`).
const MOST_GROUPS: usize = 32;
const USAGE: &str = "Usage: EXPR
where: EXPR  := TERM [ { and | or } EXPR ]
       TERM  := [ not ] { MATCH | '(' EXPR ')' }
       MATCH := module '(' ARGS ')'
       ARGS := ARG1 ARG2 ...

Example: a(x y) and not (b(x) or c(x y z))";

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Expr {
    /// Not empty. All but the last have a relation to the next one.
    list: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq)]
struct Item {
    not: bool,
    term: Term,
    next: Option<Relation>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    And,
    Or,
}

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Cmp(Cmp),
    U32(Word),
    Nbyte(Nbyte),
    Meta(Compare),
    Group(Expr),
}

/// The header from which an offset counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    Link,
    Network,
    Transport,
}

impl Layer {
    /// Parses a name or a number.
    fn parse(word: &str) -> Option<Self> {
        match word {
            "link" => Some(Self::Link),
            "network" => Some(Self::Network),
            "transport" => Some(Self::Transport),
            _ => match crate::tc::c_number(word)? {
                0 => Some(Self::Link),
                1 => Some(Self::Network),
                2 => Some(Self::Transport),
                _ => None,
            },
        }
    }

    /// Returns the bytes at an offset; `None` beyond the packet's end, or if it has no such header.
    fn bytes<'p, A: Arch>(
        self,
        frame: &Frame<'p, A>,
        offset: u16,
        len: usize,
    ) -> Option<impl DoubleEndedIterator<Item = &'p u8>> {
        let (untagged, network) = frame.untagged();
        let start = match self {
            Self::Link => 0,
            Self::Network => network,
            Self::Transport => frame.transport_offset()?.checked_sub(untagged.tags())?,
        };
        untagged.bytes(start + usize::from(offset), len)
    }
}

impl Expr {
    /// Parses the words after `match`, as far as they belong to the expression.
    pub(super) fn parse(words: &mut Words<'_>) -> Result<Self, ParseError> {
        if words.peek().is_none() {
            return Err(ParseError::incomplete("match"));
        }
        let mut lexer = Lexer::new(words);
        let expr = Self::list(&mut lexer, 0)?;
        match lexer.is_between_words() {
            true => Ok(expr),
            false => Err(syntax(lexer.next()?)),
        }
    }

    fn list(lexer: &mut Lexer<'_, '_>, depth: usize) -> Result<Self, ParseError> {
        let mut list = Vec::new();
        loop {
            let mut token = lexer.next()?;
            let not = token.is_word("not");
            if not {
                token = lexer.next()?;
            }
            let term = match token {
                Some(Token::Open) if depth == MOST_GROUPS => {
                    let error = ParseError::new("RTNETLINK answers: Invalid argument");
                    return Err(error.with_remedy(format!("{MOST_GROUPS} parentheses may be open at most")));
                }
                Some(Token::Open) => {
                    let group = Self::list(lexer, depth + 1)?;
                    match lexer.next()? {
                        Some(Token::Close) => Term::Group(group),
                        other => return Err(syntax(other)),
                    }
                }
                Some(Token::Word(name)) if !["not", "and", "or"].contains(&name.to_lowercase().as_str()) => {
                    Term::parse(&name, lexer)?
                }
                other => return Err(syntax(other)),
            };
            let next = if lexer.take_word("and") {
                Some(Relation::And)
            } else if lexer.take_word("or") {
                Some(Relation::Or)
            } else {
                None
            };
            list.push(Item { not, term, next });
            if next.is_none() {
                return Ok(Self { list });
            }
        }
    }

    /// Whether the packet matches.
    pub(super) fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        let mut result = false;
        for item in &self.list {
            result = item.term.matches(frame) != item.not;
            // The first match decides `or`, the first other one `and`.
            let goes_on = match item.next {
                Some(Relation::And) => result,
                Some(Relation::Or) => !result,
                None => false,
            };
            if !goes_on {
                break;
            }
        }
        result
    }

    /// Appends the expression as tc shows it, behind a line break.
    pub(super) fn show(&self, text: &mut String) {
        text.push('\n');
        self.show_list(text, 1);
    }

    fn show_list(&self, text: &mut String, depth: usize) {
        let indent = "  ".repeat(depth);
        text.push_str(&indent);
        for Item { not, term, next } in &self.list {
            text.push_str(if *not { "NOT " } else { "" });
            let is_group = match term {
                Term::Group(group) => {
                    text.push_str("(\n");
                    group.show_list(text, depth + 1);
                    text.push_str(&indent);
                    text.push_str(") ");
                    true
                }
                _ => {
                    let _ = writeln!(text, "{term}");
                    false
                }
            };
            let relation = match next {
                Some(Relation::And) => "AND ",
                Some(Relation::Or) => "OR ",
                None => continue,
            };
            if !is_group {
                text.push_str(&indent);
            }
            text.push_str(relation);
        }
    }
}

/// In one line, as a command has it.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Item { not, term, next } in &self.list {
            f.write_str(if *not { "not " } else { "" })?;
            match term {
                Term::Nbyte(nbyte) => nbyte.write_input(f)?,
                Term::U32(word) => word.write_input(f)?,
                term => write!(f, "{term}")?,
            }
            f.write_str(match next {
                Some(Relation::And) => " and ",
                Some(Relation::Or) => " or ",
                None => "",
            })?;
        }
        Ok(())
    }
}

impl Term {
    /// Parses `(ARGS)` of the match `name`.
    fn parse(name: &str, lexer: &mut Lexer<'_, '_>) -> Result<Self, ParseError> {
        let call = match lexer.next()? {
            Some(Token::Open) => Call::read(name, lexer)?,
            other => return Err(syntax(other)),
        };
        match name {
            "cmp" => Cmp::parse(&call).map(Self::Cmp),
            "u32" => Word::parse(&call).map(Self::U32),
            "nbyte" => Nbyte::parse(&call).map(Self::Nbyte),
            "meta" => Compare::parse(&call).map(Self::Meta),
            _ => {
                let error = ParseError::new(format!("Unknown ematch \"{name}\"\nIllegal \"ematch\""));
                Err(error.with_remedy("there are cmp, u32, nbyte and meta"))
            }
        }
    }

    fn matches<A: Arch>(&self, frame: &Frame<'_, A>) -> bool {
        match self {
            Self::Cmp(cmp) => cmp.matches(frame),
            Self::U32(word) => word.matches(frame),
            Self::Nbyte(nbyte) => nbyte.matches(frame),
            Self::Meta(compare) => compare.matches(frame),
            Self::Group(expr) => expr.matches(frame),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cmp(cmp) => cmp.fmt(f),
            Self::U32(word) => word.fmt(f),
            Self::Nbyte(nbyte) => nbyte.fmt(f),
            Self::Meta(compare) => compare.fmt(f),
            Self::Group(expr) => write!(f, "( {expr} )"),
        }
    }
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Eq,
    Gt,
    Lt,
}

impl Operator {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "eq" => Some(Self::Eq),
            "gt" => Some(Self::Gt),
            "lt" => Some(Self::Lt),
            _ => None,
        }
    }

    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Self::Eq => left == right,
            Self::Gt => left > right,
            Self::Lt => left < right,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Gt => "gt",
            Self::Lt => "lt",
        }
    }
}

/// An argument of a match: its bytes, and whether it was in quotes.
#[derive(Debug, Clone)]
struct Arg {
    bytes: Vec<u8>,
    quoted: bool,
}

impl Arg {
    /// Returns the argument as a word; empty if it is none.
    fn word(&self) -> &str {
        str::from_utf8(&self.bytes).unwrap_or_default()
    }

    fn number(&self) -> Option<u32> {
        if self.quoted { None } else { crate::tc::c_number(self.word()) }
    }
}

/// A match with its arguments.
struct Call<'n> {
    name: &'n str,
    args: Vec<Arg>,
}

impl<'n> Call<'n> {
    /// Reads arguments up to the closing parenthesis. There is one at least.
    fn read(name: &'n str, lexer: &mut Lexer<'_, '_>) -> Result<Self, ParseError> {
        let mut args = Vec::new();
        loop {
            match lexer.next()? {
                Some(Token::Word(word)) => args.push(Arg { bytes: word.into_bytes(), quoted: false }),
                Some(Token::Quoted(bytes)) => args.push(Arg { bytes, quoted: true }),
                Some(Token::Close) if !args.is_empty() => return Ok(Self { name, args }),
                other => return Err(syntax(other)),
            }
        }
    }

    /// Returns the error about the argument `at`, or about all of them, in tc's words.
    fn wrong(&self, problem: &str, at: Option<usize>, usage: &'static str) -> ParseError {
        let show = |(index, arg): (usize, &Arg)| match at == Some(index) {
            true => format!(">>{}<<", arg.word()),
            false => arg.word().to_owned(),
        };
        let args: Vec<_> = self.args.iter().enumerate().map(show).collect();
        let text = format!("{problem}\n... {}({})...\nIllegal \"ematch\"", self.name, args.join(" "));
        ParseError::new(text).with_usage(usage)
    }
}

fn syntax(token: Option<Token>) -> ParseError {
    let at = match token {
        None => "the end of the command".to_owned(),
        Some(Token::Open) => "\"(\"".to_owned(),
        Some(Token::Close) => "\")\"".to_owned(),
        Some(Token::Word(word)) => format!("\"{word}\""),
        Some(Token::Quoted(_)) => "a text in quotes".to_owned(),
    };
    let error = ParseError::new("Parse error: syntax error\nIllegal \"ematch\"").with_usage(USAGE);
    error.with_remedy(format!("{at} is not expected here"))
}

#[cfg(test)]
mod tests;
