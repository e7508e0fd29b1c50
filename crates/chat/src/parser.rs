//! Taking an answer apart while it comes.
//!
//! The parser goes by characters, so how the text is cut into pieces makes no difference. White space
//! between the parts of an answer (behind reasoning, around calls) belongs to none of them and is
//! dropped; everything else comes out in some segment.

use std::borrow::Borrow;
use std::collections::VecDeque;

use crate::Format;
use crate::calls::{Context, Flow, HOLD, Machine};
use crate::harmony::Messages;
use crate::mark::{Mark, Match, Search};
use crate::segment::{Segment, Segments};
use crate::syntax::{Calls, Syntax};
use crate::tool::{Signature, Tool};

/// Bytes of white space that may wait for what comes behind.
const SPACE: usize = 4 << 10;

/// What a [`Parser`] looks for.
#[derive(Debug, Clone, Default)]
pub struct ParserOptions {
    /// The tools in the prompt. Without any, nothing is a call.
    pub tools: Vec<Tool>,
    /// Tell reasoning apart; otherwise it is text as the model writes it, marks included.
    pub reasoning: bool,
    /// The prompt ends within reasoning ([`Format::prompt_opens_reasoning`]).
    pub prompt_opens_reasoning: bool,
}

/// Reads one answer.
#[derive(Debug)]
pub struct Parser {
    syntax: Syntax,
    tools: Vec<Signature>,
    reasoning: bool,
    /// Marks that are looked for in text: first those that open calls, then those that are dropped.
    marks: Vec<&'static str>,
    /// How many of `marks` open calls.
    opens: usize,
    place: Place,
    /// White space that is dropped if the part before it has ended.
    space: String,
    /// Nothing of this part has come yet, so white space does not count.
    fresh: bool,
    /// A call without a mark may come: at the beginning of an answer, or behind such a call.
    bare: bool,
    /// Text that was read and of which no segment was given.
    held: String,
    segments: Segments,
}

#[derive(Debug)]
enum Place {
    /// Before everything: reasoning may open here.
    Start(Mark),
    Reasoning(Search),
    Text(Search),
    Calls(Box<Machine>),
    Harmony(Messages),
}

impl Parser {
    /// A parser at the beginning of an answer. It keeps of each tool its name and the types of its arguments.
    pub fn new(format: &Format, options: impl Borrow<ParserOptions>) -> Self {
        let options = options.borrow();
        let syntax = format.syntax;
        let mut marks = Vec::new();
        if !options.tools.is_empty() {
            marks = Machine::opens(&syntax.calls);
        }
        let opens = marks.len();
        marks.extend(syntax.drop);
        let place = match (syntax.calls, syntax.think) {
            (Calls::Harmony, _) => Place::Harmony(Messages::new(options.reasoning)),
            (_, Some(_)) if options.prompt_opens_reasoning => Place::Reasoning(Search::default()),
            (_, Some(_)) => Place::Start(Mark::default()),
            (_, None) => Place::Text(Search::default()),
        };
        Self {
            syntax,
            tools: options.tools.iter().map(Signature::of).collect(),
            reasoning: options.reasoning,
            marks,
            opens,
            fresh: matches!(place, Place::Reasoning(_)),
            bare: opens > 0 && matches!(syntax.calls, Calls::Json(json) if json.bare),
            place,
            space: String::new(),
            held: String::new(),
            segments: Segments::default(),
        }
    }

    /// Takes a piece of the answer and gives what is sure with it.
    pub fn push(&mut self, text: &str) -> Vec<Segment> {
        // What a mark turned out not to be is read again.
        let mut again: VecDeque<char> = VecDeque::new();
        for c in text.chars() {
            again.push_back(c);
            while let Some(c) = again.pop_front() {
                let back = self.step(c);
                back.chars().rev().for_each(|c| again.push_front(c));
            }
        }
        std::mem::take(&mut self.segments.found)
    }

    /// Ends the answer and gives what was still open. A call that was cut off has no
    /// [`Segment::ToolCallEnd`].
    pub fn finish(mut self) -> Vec<Segment> {
        let held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.place, Place::Text(Search::default())) {
            Place::Start(_) => self.plain(&held),
            Place::Reasoning(mut search) => {
                let tail = search.take();
                tail.chars().for_each(|c| self.thought(c));
            }
            Place::Text(mut search) => {
                let tail = search.take();
                tail.chars().for_each(|c| self.letter(c));
                let space = std::mem::take(&mut self.space);
                self.segments.text(&space);
            }
            Place::Calls(mut machine) => {
                let mut again = held;
                let mut cx =
                    Context { segments: &mut self.segments, tools: &self.tools, held: &mut again };
                if !machine.cut(&mut cx) {
                    self.plain(&again);
                }
            }
            Place::Harmony(messages) => messages.finish(&mut self.segments),
        }
        self.segments.found
    }

    /// Ends an answer that a limit has cut off, and gives what was still open: without the beginning of a mark, or of
    /// a call before its name, which would only have been text if something else had followed.
    pub fn cut(mut self) -> Vec<Segment> {
        let mut held = std::mem::take(&mut self.held);
        match std::mem::replace(&mut self.place, Place::Text(Search::default())) {
            Place::Start(_) | Place::Reasoning(_) => {}
            Place::Text(_) => {
                let space = std::mem::take(&mut self.space);
                self.segments.text(&space);
            }
            Place::Calls(mut machine) => {
                let marked =
                    self.marks[..self.opens].iter().any(|open| held.trim_start().starts_with(open));
                let mut cx =
                    Context { segments: &mut self.segments, tools: &self.tools, held: &mut held };
                if !machine.cut(&mut cx) && !marked {
                    self.plain(&held);
                }
            }
            Place::Harmony(messages) => messages.cut(&mut self.segments),
        }
        self.segments.found
    }

    /// Takes a character; gives back what is to be read again.
    fn step(&mut self, c: char) -> String {
        match &mut self.place {
            Place::Harmony(messages) => messages.push(c, &self.tools, &mut self.segments),
            Place::Start(mark) => {
                self.held.push(c);
                let (open, _) = self.syntax.think.unwrap_or_default();
                match mark.push(c, &[open]) {
                    // White space alone may be long; it is no reason to wait.
                    Match::More if self.held.len() < SPACE => {}
                    Match::Hit(_) => {
                        let held = std::mem::take(&mut self.held);
                        if self.reasoning {
                            self.fresh = true;
                        } else {
                            self.plain(&held);
                        }
                        self.place = Place::Reasoning(Search::default());
                    }
                    Match::More | Match::Miss => {
                        self.place = Place::Text(Search::default());
                        return std::mem::take(&mut self.held);
                    }
                }
            }
            Place::Reasoning(search) => {
                let mut search = std::mem::take(search);
                let (_, close) = self.syntax.think.unwrap_or_default();
                let hit = search.push(c, &[close], |c| self.thought(c));
                self.place = match hit {
                    None => Place::Reasoning(search),
                    Some(_) => {
                        if self.reasoning {
                            self.space.clear();
                            self.fresh = true;
                        } else {
                            self.plain(close);
                        }
                        Place::Text(Search::default())
                    }
                };
            }
            Place::Text(search) => {
                if c == '{' && self.bare && search.is_empty() {
                    return self.bare_call(c);
                }
                let mut search = std::mem::take(search);
                let marks = std::mem::take(&mut self.marks);
                let hit = search.push(c, &marks, |c| self.letter(c));
                self.marks = marks;
                self.place = Place::Text(search);
                match hit {
                    Some(i) if i < self.opens => {
                        let open = self.marks[i];
                        self.held = std::mem::take(&mut self.space);
                        self.held.push_str(open);
                        if let Some(machine) = Machine::new(&self.syntax, open) {
                            self.place = Place::Calls(Box::new(machine));
                        }
                    }
                    // A mark around the answer: what it opens begins afresh.
                    Some(_) => {
                        self.space.clear();
                        self.fresh = true;
                    }
                    None => {}
                }
            }
            Place::Calls(_) => return self.call(c),
        }
        String::new()
    }

    /// A character of calls.
    fn call(&mut self, c: char) -> String {
        self.held.push(c);
        let Place::Calls(machine) = &mut self.place else { return String::new() };
        let mut cx =
            Context { segments: &mut self.segments, tools: &self.tools, held: &mut self.held };
        let mut flow = machine.push(c, &mut cx);
        if flow == Flow::More && self.held.len() > HOLD {
            flow = Flow::Fault(0);
        }
        let (back, text) = match flow {
            Flow::More => return String::new(),
            Flow::Over(back) => (back, false),
            Flow::Fault(back) => (back, true),
        };
        let again = self.held.split_off(self.held.len().saturating_sub(back));
        let held = std::mem::take(&mut self.held);
        self.place = Place::Text(Search::default());
        self.fresh = !text;
        self.bare = !text && matches!(self.syntax.calls, Calls::Json(json) if json.bare);
        if text {
            self.plain(&held);
        }
        again
    }

    /// A call that begins without a mark.
    fn bare_call(&mut self, c: char) -> String {
        self.held = std::mem::take(&mut self.space);
        if let Some(machine) = Machine::new(&self.syntax, "") {
            self.place = Place::Calls(Box::new(machine));
        }
        self.call(c)
    }

    /// A character of reasoning.
    fn thought(&mut self, c: char) {
        if !self.reasoning {
            return self.segments.text(c.encode_utf8(&mut [0; 4]));
        }
        if c.is_whitespace() && (self.fresh || self.space.len() < SPACE) {
            if !self.fresh {
                self.space.push(c);
            }
            return;
        }
        self.fresh = false;
        self.space.push(c);
        self.segments.reasoning(&self.space);
        self.space.clear();
    }

    /// A character of text.
    fn letter(&mut self, c: char) {
        if c.is_whitespace() && (self.fresh || self.opens > 0 && self.space.len() < SPACE) {
            if !self.fresh {
                self.space.push(c);
            }
            return;
        }
        if c == ';' && self.fresh && self.bare {
            return;
        }
        self.fresh = false;
        self.bare = false;
        self.space.push(c);
        self.segments.text(&self.space);
        self.space.clear();
    }

    /// Text as it stands.
    fn plain(&mut self, text: &str) {
        self.segments.text(&self.space);
        self.space.clear();
        self.segments.text(text);
    }
}
