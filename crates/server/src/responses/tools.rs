//! The tools of a request: what the model is offered of them, and what its calls are answered as.
//!
//! A model calls functions. Tools of other kinds that the client runs are offered as functions: those of a namespace
//! under names that have both parts, custom ones with one text, `local_shell`, `shell`, `apply_patch` and
//! `tool_search` with the fields of their items. Tools that OpenAI runs itself are left out, and told.

use crate::fault::Fault;
use crate::normal::ToolChoice;
use crate::openai::custom::{INPUT, function, schema};
pub(super) use crate::openai::custom::{as_arguments, input};
use crate::openai::tools;
use serde_json::{Map, Value as Json, json};
use std::collections::{HashMap, HashSet};

/// Kinds that OpenAI's servers run: their names' beginnings, since versions follow.
const HOSTED: [&str; 8] = [
    "web_search",
    "file_search",
    "code_interpreter",
    "image_generation",
    "mcp",
    "computer",
    "container",
    "programmatic_tool_calling",
];

/// What a function that the model is offered stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Function { name: String, namespace: Option<String> },
    Custom { name: String, namespace: Option<String> },
    LocalShell,
    Shell,
    ApplyPatch,
    ToolSearch,
}

/// Tools of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Toolset {
    /// What the model is offered, in the normal form.
    pub(super) functions: Vec<Json>,
    /// By the names of the functions.
    kinds: HashMap<String, Kind>,
    /// Kinds that are left out.
    pub(super) left_out: Vec<String>,
    /// Those whose schemas are told when a search finds them.
    deferred: bool,
}

impl Toolset {
    /// Reads the tools of a request, and those that a search has found before.
    ///
    /// # Errors
    /// 400 for what is no tool, and for two of one name.
    pub(super) fn read(given: Vec<Json>, found: Vec<Json>) -> Result<Toolset, Fault> {
        // Where the client searches itself, it sends what is found. Where a server should, all are offered at once.
        let searches = |tool: &Json| tool["type"] == "tool_search" && tool["execution"] == "client";
        let mut set = Toolset { deferred: given.iter().any(searches), ..Toolset::default() };
        for (at, tool) in given.into_iter().enumerate() {
            set.add(tool, None, &format!("tools[{at}]"))?;
        }
        for tool in found {
            let mut more = Toolset::default();
            // What is found again is known.
            let fine = more.add(tool, None, "input").is_ok();
            if fine && !more.kinds.keys().any(|name| set.kinds.contains_key(name)) {
                set.functions.append(&mut more.functions);
                set.kinds.extend(more.kinds);
                more.left_out.iter().for_each(|kind| set.leave_out(kind));
            }
        }
        Ok(set)
    }

    fn add(&mut self, mut tool: Json, namespace: Option<&str>, at: &str) -> Result<(), Fault> {
        let field = |name: &str| format!("{at}.{name}");
        let kind = tool["type"].as_str().map(str::to_owned).ok_or_else(|| {
            Fault::field(field("type"), format!("{at} must be an object with a type: function"))
        })?;
        let kind = kind.as_str();
        let named = || {
            let name = tool["name"].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
            name.ok_or_else(|| Fault::field(field("name"), format!("{at} must have a name")))
        };
        match kind {
            "function" | "custom" if self.deferred && tool["defer_loading"] == true => Ok(()),
            "function" => {
                let name = named()?;
                let parameters = &tool["parameters"];
                if !parameters.is_object() && !parameters.is_null() {
                    let message = "parameters must be a JSON schema of an object";
                    return Err(Fault::field(field("parameters"), message));
                }
                let mut function = match tool {
                    Json::Object(fields) => fields,
                    _ => Map::new(),
                };
                for other in ["type", "defer_loading"] {
                    function.shift_remove(other);
                }
                let joined = joined(namespace, &name);
                let kind = Kind::Function { name, namespace: namespace.map(str::to_owned) };
                self.offer(&joined, function, kind, at)
            }
            "custom" => {
                let name = named()?;
                let (input, told) = schema(&tool);
                let function = function(&told, json!({INPUT: input}), &[INPUT]);
                let joined = joined(namespace, &name);
                let kind = Kind::Custom { name, namespace: namespace.map(str::to_owned) };
                self.offer(&joined, function, kind, at)
            }
            "namespace" => {
                let name = named()?;
                let Some(Json::Array(list)) = tool.get_mut("tools").map(Json::take) else {
                    let message = format!("{} must be a list", field("tools"));
                    return Err(Fault::field(field("tools"), message));
                };
                for (i, tool) in list.into_iter().enumerate() {
                    self.add(tool, Some(&name), &format!("{at}.tools[{i}]"))?;
                }
                Ok(())
            }
            "local_shell" => {
                let told = "Runs a program on the user's computer and gives what it prints.";
                let fields = json!({
                    "command": {
                        "type": "array", "items": {"type": "string"},
                        "description": "The program and its arguments.",
                    },
                    "working_directory": {"type": "string"},
                    "timeout_ms": {"type": "integer"},
                });
                self.offer(kind, function(told, fields, &["command"]), Kind::LocalShell, at)
            }
            // A shell in a container is OpenAI's.
            "shell" if matches!(tool["environment"]["type"].as_str(), None | Some("local")) => {
                let told =
                    "Runs commands in a shell of the user's computer and gives what they print.";
                let fields = json!({
                    "commands": {
                        "type": "array", "items": {"type": "string"},
                        "description": "Command lines.",
                    },
                    "timeout_ms": {"type": "integer"},
                    "max_output_length": {
                        "type": "integer", "description": "Characters to give at most.",
                    },
                });
                self.offer(kind, function(told, fields, &["commands"]), Kind::Shell, at)
            }
            "apply_patch" => {
                let told = "Creates, changes or deletes a file.";
                let fields = json!({
                    "type": {"enum": ["create_file", "update_file", "delete_file"]},
                    "path": {"type": "string"},
                    "diff": {
                        "type": "string",
                        "description": "Lines of context, lines to take away behind a -, and lines to \
                                        add behind a +, after a line with @@ for each place. Of a new \
                                        file all its lines behind a +. None to delete a file.",
                    },
                });
                self.offer(kind, function(told, fields, &["type", "path"]), Kind::ApplyPatch, at)
            }
            "tool_search" if tool["execution"] == "client" => {
                let told = tool["description"].as_str();
                let told = told.unwrap_or("Finds tools that can be called afterwards.");
                let mut function = function(told, json!({"query": {"type": "string"}}), &["query"]);
                if let Some(parameters) = tool.get_mut("parameters").filter(|p| p.is_object()) {
                    function["parameters"] = parameters.take();
                }
                self.offer(kind, function, Kind::ToolSearch, at)
            }
            "shell" | "tool_search" => {
                self.leave_out(kind);
                Ok(())
            }
            kind if HOSTED.iter().any(|hosted| kind.starts_with(hosted)) => {
                self.leave_out(kind);
                Ok(())
            }
            kind => {
                let message = format!("tools of type {kind:?} are not supported: use function");
                Err(Fault::unsupported(field("type"), message))
            }
        }
    }

    fn leave_out(&mut self, kind: &str) {
        if !self.left_out.iter().any(|left| left == kind) {
            self.left_out.push(kind.to_owned());
        }
    }

    fn offer(
        &mut self,
        name: &str,
        mut function: Map<String, Json>,
        kind: Kind,
        at: &str,
    ) -> Result<(), Fault> {
        if self.kinds.insert(name.to_owned(), kind).is_some() {
            let message = format!("two tools have the name {name:?}");
            return Err(Fault::field(format!("{at}.name"), message));
        }
        function.insert("name".into(), name.into());
        self.functions.push(json!({"type": "function", "function": function}));
        Ok(())
    }

    /// What a call of a function is answered as.
    pub(super) fn kind(&self, name: &str) -> Kind {
        let unknown = || Kind::Function { name: name.to_owned(), namespace: None };
        self.kinds.get(name).cloned().unwrap_or_else(unknown)
    }

    /// Which tools must be called. Of `allowed_tools` the others are taken away.
    ///
    /// # Errors
    /// 400 for a choice that is none, or of a tool that is not there.
    pub(super) fn choose(&mut self, choice: Option<&Json>) -> Result<ToolChoice, Fault> {
        let Some(choice) = choice.filter(|choice| choice.is_object()) else {
            return tools::choice(choice, &self.functions);
        };
        if choice["type"] != "allowed_tools" {
            let name = self.named(choice, "tool_choice")?;
            return Ok(ToolChoice::Named(name));
        }
        let allowed = choice["tools"].as_array().into_iter().flatten();
        let allowed = allowed
            .filter(|tool| !is_hosted(tool))
            .map(|tool| self.named(tool, "tool_choice.tools"))
            .collect::<Result<HashSet<_>, Fault>>()?;
        let name = |tool: &Json| tool["function"]["name"].as_str().map(str::to_owned);
        self.functions.retain(|tool| name(tool).is_some_and(|name| allowed.contains(&name)));
        tools::choice(Some(&choice["mode"]), &self.functions)
    }

    /// The function that an object with a type, and for some kinds a name, means.
    fn named(&self, tool: &Json, at: &str) -> Result<String, Fault> {
        let name = match tool["type"].as_str() {
            Some(kind @ ("local_shell" | "shell" | "apply_patch" | "tool_search")) => {
                kind.to_owned()
            }
            Some("function" | "custom") => {
                let name = tool["name"].as_str().or_else(|| tool["function"]["name"].as_str());
                let name =
                    name.ok_or_else(|| Fault::field(format!("{at}.name"), "it must name a tool"))?;
                joined(tool["namespace"].as_str(), name)
            }
            kind => {
                let message = format!("{at} of type {kind:?} is not supported");
                return Err(Fault::unsupported(at, message));
            }
        };
        if self.kinds.contains_key(&name) {
            return Ok(name);
        }
        Err(Fault::field(at, format!("there is no tool with the name {name:?}")))
    }
}

fn is_hosted(tool: &Json) -> bool {
    let kind = tool["type"].as_str().unwrap_or_default();
    HOSTED.iter().any(|hosted| kind.starts_with(hosted))
}

/// The name of a function of a namespace.
pub(super) fn joined(namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|namespace| !namespace.is_empty()) {
        None => name.to_owned(),
        Some(namespace) if namespace.ends_with('_') => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}__{name}"),
    }
}

/// What is left of a call's text when it ends, by its kind: the fields of its item beside id, status and `call_id`.
pub(super) fn fields(kind: &Kind, arguments: &str) -> Map<String, Json> {
    let named = |name: &str, namespace: &Option<String>| {
        let mut fields = Map::new();
        fields.insert("name".into(), name.into());
        if let Some(namespace) = namespace {
            fields.insert("namespace".into(), namespace.as_str().into());
        }
        fields
    };
    let given = || serde_json::from_str::<Map<String, Json>>(arguments).unwrap_or_default();
    match kind {
        Kind::Function { name, namespace } => {
            let mut fields = named(name, namespace);
            fields.insert("arguments".into(), arguments.into());
            fields
        }
        Kind::Custom { name, namespace } => {
            let mut fields = named(name, namespace);
            fields.insert("input".into(), input(arguments).into());
            fields
        }
        Kind::LocalShell => {
            let mut action = given();
            action.insert("type".into(), "exec".into());
            action.entry("command").or_insert_with(|| json!([]));
            action.entry("env").or_insert_with(|| json!({}));
            Map::from_iter([("action".to_owned(), action.into())])
        }
        Kind::Shell => {
            let mut action = given();
            action.entry("commands").or_insert_with(|| json!([]));
            for optional in ["timeout_ms", "max_output_length"] {
                action.entry(optional).or_insert(Json::Null);
            }
            Map::from_iter([("action".to_owned(), action.into())])
        }
        Kind::ApplyPatch => {
            let mut operation = given();
            operation.entry("type").or_insert_with(|| "update_file".into());
            operation.entry("path").or_insert_with(|| "".into());
            if operation["type"] == "delete_file" {
                operation.shift_remove("diff");
            } else {
                operation.entry("diff").or_insert_with(|| "".into());
            }
            Map::from_iter([("operation".to_owned(), operation.into())])
        }
        Kind::ToolSearch => Map::from_iter([
            ("execution".to_owned(), "client".into()),
            ("arguments".to_owned(), given().into()),
        ]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tools: Json) -> Toolset {
        Toolset::read(tools.as_array().unwrap().clone(), Vec::new()).unwrap()
    }

    fn names(set: &Toolset) -> Vec<&str> {
        set.functions.iter().map(|f| f["function"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn every_kind_is_offered_or_left_out() {
        let set = set(json!([
            {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": true},
            {"type": "namespace", "name": "agents", "tools": [
                {"type": "function", "name": "spawn"}, {"type": "custom", "name": "tell"}]},
            {"type": "namespace", "name": "mcp__git__", "tools": [{"type": "function", "name": "log"}]},
            {"type": "custom", "name": "patch", "description": "Patches.",
             "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
            {"type": "local_shell"}, {"type": "shell"}, {"type": "apply_patch"},
            {"type": "tool_search", "execution": "client", "parameters": {"type": "object"}},
            {"type": "web_search_preview"}, {"type": "web_search", "external_web_access": true},
            {"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "tool_search"},
        ]));
        let offered = [
            "look",
            "agents__spawn",
            "agents__tell",
            "mcp__git__log",
            "patch",
            "local_shell",
            "shell",
            "apply_patch",
            "tool_search",
        ];
        assert_eq!(names(&set), offered);
        assert_eq!(set.left_out, ["web_search_preview", "web_search", "mcp", "tool_search"]);
        let patch = &set.functions[4]["function"];
        assert!(patch["description"].as_str().unwrap().ends_with("lark grammar:\nstart: \"x\""));
        assert_eq!(patch["parameters"]["required"], json!(["input"]));
        let kind = Kind::Function { name: "spawn".into(), namespace: Some("agents".into()) };
        assert_eq!(set.kind("agents__spawn"), kind);
        assert_eq!(fields(&kind, "{}")["namespace"], "agents");
    }

    #[test]
    fn what_is_deferred_is_offered_when_it_is_found() {
        let later = json!({"type": "function", "name": "later", "defer_loading": true});
        let search = |more: Json| {
            let mut search = json!({"type": "tool_search"});
            search.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            search
        };
        let given = vec![later.clone(), search(json!({"execution": "client"}))];
        let found = vec![later.clone(), later.clone()];
        let read = |given: Vec<Json>, found| Toolset::read(given, found).unwrap();
        assert_eq!(names(&read(given.clone(), Vec::new())), ["tool_search"]);
        assert_eq!(names(&read(given, found)), ["tool_search", "later"]);
        // Searches of the server are not run here: the model sees all.
        assert_eq!(names(&read(vec![later, search(json!({}))], Vec::new())), ["later"]);
    }

    #[test]
    fn faults_name_the_tool() {
        let at = |tools: Json| {
            Toolset::read(tools.as_array().unwrap().clone(), Vec::new()).unwrap_err().param.unwrap()
        };
        assert_eq!(at(json!([{"type": "teleport"}])), "tools[0].type");
        assert_eq!(at(json!([{"name": "a"}])), "tools[0].type");
        assert_eq!(at(json!([{"type": "function"}])), "tools[0].name");
        let inner = json!([{"type": "namespace", "name": "a", "tools": [{"type": "function"}]}]);
        assert_eq!(at(inner), "tools[0].tools[0].name");
        let twice = json!([{"type": "function", "name": "a"}, {"type": "custom", "name": "a"}]);
        assert_eq!(at(twice), "tools[1].name");
    }

    #[test]
    fn a_choice_names_tools_of_any_kind() {
        let tools = json!([
            {"type": "function", "name": "look"}, {"type": "custom", "name": "patch"},
            {"type": "shell"}, {"type": "namespace", "name": "n",
             "tools": [{"type": "function", "name": "f"}]},
        ]);
        let choose = |choice: Json| set(tools.clone()).choose(Some(&choice));
        assert_eq!(
            choose(json!({"type": "custom", "name": "patch"})),
            Ok(ToolChoice::Named("patch".into()))
        );
        assert_eq!(choose(json!({"type": "shell"})), Ok(ToolChoice::Named("shell".into())));
        let inner = json!({"type": "function", "name": "f", "namespace": "n"});
        assert_eq!(choose(inner), Ok(ToolChoice::Named("n__f".into())));
        assert!(choose(json!({"type": "apply_patch"})).is_err());
        assert!(choose(json!({"type": "web_search"})).is_err());
        let mut some = set(tools.clone());
        let allowed = json!({"type": "allowed_tools", "mode": "required",
            "tools": [{"type": "shell"}, {"type": "web_search"}]});
        assert_eq!(some.choose(Some(&allowed)), Ok(ToolChoice::Required));
        assert_eq!(names(&some), ["shell"]);
    }

    #[test]
    fn calls_have_the_fields_of_their_items() {
        let shell = fields(&Kind::Shell, r#"{"commands": ["ls", "cat "]}"#);
        assert_eq!(shell["action"]["commands"], json!(["ls", "cat "]));
        assert_eq!(fields(&Kind::LocalShell, "{}")["action"]["command"], json!([]));
        assert_eq!(input(r#"{"input": "a\nb"#), "a\nb");
        let patch =
            fields(&Kind::ApplyPatch, r#"{"type": "delete_file", "path": "a", "diff": ""}"#);
        assert_eq!(patch["operation"], json!({"type": "delete_file", "path": "a"}));
    }
}
