//! Presets: provider definitions that are shipped in the binary.
//!
//! A preset is a provider definition like any other, with one table more: `[settings.NAME]` lists the
//! keys that it adds to the provider's own, each with `about` and, unless it must be given, with
//! `default` or `optional = true`. One with `one_of` is one of these words.

use super::section::{Findings, Item, quoted};
use super::source::{self, Content, Table};

/// Name and text of every preset.
pub(super) const PRESETS: &[(&str, &str)] = &[
    ("anthropic-messages", include_str!("../../../../presets/anthropic-messages.toml")),
    ("openai-chat", include_str!("../../../../presets/openai-chat.toml")),
];

/// A key that a preset adds to a provider.
pub(super) struct Setting {
    pub name: String,
    pub about: String,
    pub default: Option<source::Node>,
    pub optional: bool,
    /// The words that it may be; any value if empty.
    pub one_of: Vec<String>,
}

#[cfg(test)]
impl Setting {
    /// Its default, where that is a string.
    pub(super) fn default_text(&self) -> Option<&str> {
        match &self.default.as_ref()?.content {
            Content::String(text) => Some(text),
            _ => None,
        }
    }
}

/// A preset: the definition under the user's own, and the keys it adds.
pub(super) struct Preset {
    pub definition: Table,
    pub settings: Vec<Setting>,
}

/// Reads the preset that `item` names.
pub(super) fn read(item: &Item<'_>) -> Option<Preset> {
    let name = item.string("openai-chat")?;
    let Some((_, text)) = PRESETS.iter().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        item.error(format!("there is no preset {name:?}; expected one of {}", quoted(&names)));
        return None;
    };
    match parse(item.findings, name, text) {
        Ok(preset) => Some(preset),
        Err(message) => {
            item.error(message);
            None
        }
    }
}

/// The keys that a shipped preset adds, for the test of the page.
#[cfg(test)]
pub(super) fn settings(name: &str) -> Vec<Setting> {
    let findings = Findings::new(std::path::Path::new(""), &|_| None);
    let text = PRESETS.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    parse(&findings, name, text).map(|preset| preset.settings).unwrap_or_default()
}

fn parse(findings: &Findings<'_>, name: &str, text: &str) -> Result<Preset, String> {
    let file = findings.file(&format!("preset {name}"));
    let mut definition = source::parse(text, file).map_err(|_| format!("the preset {name:?} is no TOML"))?;
    let mut settings = Vec::new();
    if let Some(Content::Table(table)) = definition.remove("settings").map(|node| node.content) {
        for (name, node) in table.entries {
            let Content::Table(mut setting) = node.content else { continue };
            let about = match setting.remove("about").map(|node| node.content) {
                Some(Content::String(about)) => about,
                _ => String::new(),
            };
            let optional = setting.get("optional").is_some_and(|node| matches!(node.content, Content::Boolean(true)));
            let one_of = match setting.remove("one_of").map(|node| node.content) {
                Some(Content::Array(words)) => words.into_iter().filter_map(|node| into_text(node.content)).collect(),
                _ => Vec::new(),
            };
            settings.push(Setting { name, about, default: setting.remove("default"), optional, one_of });
        }
    }
    Ok(Preset { definition, settings })
}

fn into_text(content: Content) -> Option<String> {
    match content {
        Content::String(text) => Some(text),
        _ => None,
    }
}
