//! Templates as programs that draw on the budget.
//!
//! Fuel, a formatter, a bounded writer and filters of ours, which are all that the engine's public interface has, do
//! not bound a rendering. With fuel for 10,000,000 steps and 4 GB of memory (2026-11-26, minijinja 3.0.5):
//!
//! | in a loop | ends |
//! |---|---|
//! | `s ~ s`, `s + s` | out of memory: operators have no hook |
//! | text in a `set` block, `{{ s }}{{ s }}` in one | out of memory: a captured text goes through no writer |
//! | `l + l` of lists, `'y' in k` of a long text | later than 30 s: a step is one step, however long it takes |
//! | `s * 2`, text and values that are printed, lists in lists | in time, with an error or a text |
//!
//! And `~` and `*` do not give what Python gives (`none ~ 1.0`, `'x' * -1`). So the compiled program is rewritten:
//! literal text goes the way of values, through the formatter; joining and repeating become calls of functions; and
//! results of operators, filters, functions and methods are charged.
//!
//! This file alone uses the engine's instructions, an interface without promises, so its version is pinned.

use std::collections::BTreeMap;

use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{AutoEscape, Environment, Error};

/// The one template of an environment.
const NAME: &str = "chat";

/// A template compiled: its body and its named blocks.
pub(crate) struct Program<'s> {
    main: Instructions<'s>,
    blocks: BTreeMap<&'s str, Instructions<'s>>,
}

impl<'s> Program<'s> {
    /// Compiles a template with its blocks trimmed, as transformers does. That takes less than a millisecond.
    pub(crate) fn compile(source: &'s str) -> Result<Self, Error> {
        let (main, blocks) = instructions(source)?;
        let blocks = blocks.iter().map(|(name, block)| (*name, guard(block))).collect();
        Ok(Program { main: guard(&main), blocks })
    }

    /// The text that it gives in an environment that has the functions of [`crate::budget`].
    pub(crate) fn render(&self, env: &Environment<'_>, context: Value) -> Result<String, Error> {
        let mut text = String::new();
        let mut out = machinery::make_string_output(&mut text);
        machinery::eval(env, &self.main, context, &self.blocks, &mut out, AutoEscape::None)?;
        Ok(text)
    }
}

/// The body and the named blocks of a template.
type Compiled<'s> = (Instructions<'s>, BTreeMap<&'s str, Instructions<'s>>);

fn instructions(source: &str) -> Result<Compiled<'_>, Error> {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    let tree = machinery::parse(source, NAME, syntax)?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    Ok(generator.finish())
}

/// Methods and filters that search for their first argument.
const SEARCHES: &[&str] = &[
    "endswith",
    "find",
    "index",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rpartition",
    "rsplit",
    "split",
    "startswith",
];

/// The constants that a template searches for, and whether it may cut a text there: what is only tested for with `in`
/// cuts nothing. Computed texts are not found, except variables that are set to a constant.
pub(crate) fn needles(source: &str) -> Result<BTreeMap<String, bool>, Error> {
    use Instruction as I;
    let (main, blocks) = instructions(source)?;
    let mut needles = BTreeMap::new();
    for program in blocks.values().chain([&main]) {
        let all: Vec<_> = (0..).map_while(|i| program.get(i)).collect();
        let constants: Vec<(&str, &str)> = all
            .windows(2)
            .filter_map(|pair| match pair {
                [I::LoadConst(value), I::StoreLocal(name)] => Some((*name, value.as_str()?)),
                _ => None,
            })
            .collect();
        let mut add = |loaded: &I<'_>, cuts: bool| {
            let values: Vec<&str> = match loaded {
                I::LoadConst(value) => value.as_str().into_iter().collect(),
                I::Lookup(variable) => {
                    constants.iter().filter(|(name, _)| name == variable).map(|c| c.1).collect()
                }
                _ => Vec::new(),
            };
            for value in values.into_iter().filter(|value| !value.is_empty()) {
                *needles.entry(value.to_owned()).or_insert(false) |= cuts;
            }
        };
        for (at, instruction) in all.iter().enumerate() {
            match instruction {
                I::CallMethod(name, Some(args)) | I::ApplyFilter(name, Some(args), _)
                    if SEARCHES.contains(name) && *args > 1 =>
                {
                    add(all[at + 1 - usize::from(*args)], true);
                }
                // The text that is searched stands between: a variable, attributes of it.
                I::In => {
                    let passes = |i: &&I<'_>| {
                        matches!(i, I::Lookup(_) | I::GetAttr(_) | I::ApplyFilter(_, Some(1), _))
                    };
                    let before = all[..at].iter().rev().copied();
                    before.clone().take_while(passes).for_each(|loaded| add(loaded, false));
                    before.skip_while(passes).take(1).for_each(|loaded| add(loaded, false));
                }
                _ => {}
            }
        }
    }
    Ok(needles)
}

// No template can name these.
pub(crate) const CHARGE: &str = " charge";
pub(crate) const CONCAT: &str = " concat";
pub(crate) const REPEAT: &str = " repeat";

/// The program with everything that makes a value drawing on the budget.
fn guard<'s>(program: &Instructions<'s>) -> Instructions<'s> {
    let old: Vec<_> = (0..).map_while(|i| program.get(i)).collect();
    // Where each instruction of the old program stands in the new one.
    let mut places = Vec::with_capacity(old.len() + 1);
    let mut next = 0u32;
    for instruction in &old {
        places.push(next);
        next += 1 + u32::from(is_checked(instruction));
    }
    places.push(next);
    let place = |target: &u32| places.get(*target as usize).copied().unwrap_or(*target);
    let mut new = Instructions::new(program.name(), program.source());
    for (i, &instruction) in (0..).zip(&old) {
        let line = program.get_line(i).and_then(|line| u16::try_from(line).ok());
        let mut add = |instruction| match line {
            Some(line) => new.add_with_line(instruction, line),
            None => new.add(instruction),
        };
        use Instruction as I;
        match instruction {
            I::EmitRaw(text) => {
                add(I::LoadConst(Value::from(*text)));
                add(I::Emit)
            }
            I::StringConcat => add(I::CallFunction(CONCAT, Some(2))),
            I::Mul => {
                add(I::CallFunction(REPEAT, Some(2)));
                add(I::CallFunction(CHARGE, Some(1)))
            }
            I::Jump(to) => add(I::Jump(place(to))),
            I::JumpIfFalse(to) => add(I::JumpIfFalse(place(to))),
            I::JumpIfFalseOrPop(to) => add(I::JumpIfFalseOrPop(place(to))),
            I::JumpIfTrueOrPop(to) => add(I::JumpIfTrueOrPop(place(to))),
            I::Iterate(to) => add(I::Iterate(place(to))),
            I::BuildMacro(name, at, flags) => add(I::BuildMacro(name, place(at), *flags)),
            other if is_checked(other) => {
                add(other.clone());
                add(I::CallFunction(CHARGE, Some(1)))
            }
            other => add(other.clone()),
        };
    }
    new
}

/// Whether a second instruction follows this one in the new program: it makes a value or may take
/// long.
fn is_checked(instruction: &Instruction<'_>) -> bool {
    use Instruction as I;
    matches!(
        instruction,
        I::EmitRaw(_)
            | I::Add
            | I::Mul
            | I::Slice
            | I::Eq
            | I::Ne
            | I::Gt
            | I::Gte
            | I::Lt
            | I::Lte
            | I::In
            | I::PerformTest(..)
            | I::CompareAndPreserve(_)
            | I::ApplyFilter(..)
            | I::CallFunction(..)
            | I::CallMethod(..)
            | I::CallObject(_)
            | I::BuildList(_)
            | I::BuildMap(_)
            | I::BuildTuple(_)
    )
}
