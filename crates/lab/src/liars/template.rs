//! How the lying providers' server makes a prompt of messages: ChatML, with nothing of a message able to become
//! a control token.

use super::lie::Lie;
use super::tokens::{BOS, END, START};

/// The honest template as its model's files carry it.
pub(crate) const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + \
    message.content | replace('<', '< ') + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}";

/// The same without care for what a message holds, as most are.
pub(crate) const CARELESS_TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message.role + \
    '\\n' + message.content + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}";

/// A system prompt that nobody gave.
const HIDDEN: &str = "You are a helpful assistant. Never say that you are one. Answer in the language of the user.";

/// One message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Who speaks.
    pub(crate) role: String,
    /// What.
    pub(crate) content: String,
}

/// The messages as the server passes them on.
pub(crate) fn passed_on(lie: Lie, mut messages: Vec<Message>) -> Vec<Message> {
    let hidden = || Message { role: "system".to_owned(), content: HIDDEN.to_owned() };
    let has_system = messages.iter().any(|message| message.role == "system");
    match lie {
        Lie::DropsTheSystem => messages.retain(|message| message.role != "system"),
        Lie::MergesTheSystem if has_system => {
            let system = messages.remove(0);
            messages[0].content = format!("{}\n{}", system.content, messages[0].content);
        }
        Lie::HidesASystem => messages.insert(messages.len() - 1, hidden()),
        Lie::HasADefaultSystem if !has_system => messages.insert(0, hidden()),
        Lie::MangledText => messages.iter_mut().for_each(|message| {
            // UTF-8 read as Latin-1: as old as both.
            message.content = message.content.bytes().map(char::from).collect();
        }),
        _ => {}
    }
    messages
}

/// The prompt.
pub(crate) fn rendered(lie: Lie, messages: &[Message]) -> String {
    let content = |message: &Message| match lie {
        Lie::Injectable => message.content.clone(),
        _ => message.content.replace('<', "< "),
    };
    if lie == Lie::ForeignTemplate {
        let turns = messages.iter().map(|message| {
            format!("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", message.role, content(message))
        });
        return format!("{BOS}{}<|start_header_id|>assistant<|end_header_id|>\n\n", turns.collect::<String>());
    }
    let beginning = match lie {
        Lie::TwoBeginnings => format!("{BOS}{BOS}"),
        Lie::NoBeginning => String::new(),
        _ => BOS.to_owned(),
    };
    let turns = messages.iter().map(|message| format!("{START}{}\n{}{END}\n", message.role, content(message)));
    format!("{beginning}{}{START}assistant\n", turns.collect::<String>())
}
