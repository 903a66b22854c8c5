//! JSON values as minijinja sees them, and back.
//!
//! Objects and arrays are not converted: a [`View`] points into the JSON and converts what is
//! asked for. So a large input costs nothing until it is used, and what comes back is what was
//! there: the same numbers, the members in their order.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Value as Seen, ValueKind};
use minijinja::{Error, ErrorKind, State};
use serde_json::{Map, Number, Value};

use super::Scope;

/// Marks the details of errors that were written here and hold no value.
pub(super) const OURS: &str = "\u{1}";

/// How deep a value may nest that an expression built.
const MAX_DEPTH: usize = 128;

/// What becomes of a number that neither 128-bit integers nor 64-bit floating point hold exactly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Numbers {
    /// It stays exact and cannot be computed with.
    Exact,
    /// It becomes the nearest floating point number.
    Computable,
}

/// One step into a JSON value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Member(Arc<str>),
    Element(usize),
}

/// Reads `input.items[0].name`; `None` if the text is any other expression.
pub(super) fn parse_path(text: &str) -> Option<(String, Vec<Step>)> {
    // Words that mean something else to the template engine than a name.
    const RESERVED: [&str; 12] =
        ["true", "false", "none", "True", "False", "None", "and", "or", "not", "in", "is", "if"];
    let (root, mut rest) = split_name(text)?;
    if RESERVED.contains(&root) {
        return None;
    }
    let mut steps = Vec::new();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = split_name(after)?;
            steps.push(Step::Member(name.into()));
            rest = after;
        } else {
            let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
            if !index.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            steps.push(Step::Element(index.parse().ok()?));
            rest = after;
        }
    }
    Some((root.to_owned(), steps))
}

fn split_name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins_well.then_some((name, rest))
}

/// What stands at a place inside `value`.
pub(super) fn walk<'a>(value: &'a Value, steps: &[Step]) -> Option<&'a Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Member(name) => value.as_object()?.get(&**name),
        Step::Element(index) => value.as_array()?.get(*index),
    })
}

/// The scope as a template's context.
pub(super) fn context(scope: &Scope, numbers: Numbers) -> Seen {
    Seen::from_object(Context { scope: scope.clone(), numbers })
}

struct Context {
    scope: Scope,
    numbers: Numbers,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Context")
    }
}

impl Object for Context {
    fn get_value(self: &Arc<Self>, key: &Seen) -> Option<Seen> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Seen> {
        let root = self.scope.get(key)?;
        Some(see(root, root, &[], None, self.numbers))
    }
}

/// An object or array inside a JSON value.
struct View {
    root: Arc<Value>,
    steps: Vec<Step>,
    numbers: Numbers,
}

impl View {
    fn value(&self) -> &Value {
        walk(&self.root, &self.steps).unwrap_or(&Value::Null)
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.value().is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Seen) -> Option<Seen> {
        match self.value() {
            Value::Array(items) => {
                let index = key.as_usize()?;
                Some(see(&self.root, items.get(index)?, &self.steps, Some(Step::Element(index)), self.numbers))
            }
            _ => self.get_value_by_str(key.as_str()?),
        }
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Seen> {
        let value = self.value().as_object()?.get(key)?;
        Some(see(&self.root, value, &self.steps, Some(Step::Member(key.into())), self.numbers))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.value() {
            Value::Array(items) => Enumerator::Seq(items.len()),
            Value::Object(members) => Enumerator::Values(members.keys().map(Seen::from).collect()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Enumerator::Empty,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        match self.value() {
            Value::Array(items) => Some(items.len()),
            Value::Object(members) => Some(members.len()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(0),
        }
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.value())
    }
}

/// A number that the template engine cannot hold. It prints as it was written.
struct ExactNumber(Number);

impl fmt::Debug for ExactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExactNumber")
    }
}

impl Object for ExactNumber {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.0.as_f64() != Some(0.0)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// `value`, which stands `step` below `steps` in `root`.
fn see(root: &Arc<Value>, value: &Value, steps: &[Step], step: Option<Step>, numbers: Numbers) -> Seen {
    match value {
        Value::Null => Seen::from(()),
        Value::Bool(truth) => Seen::from(*truth),
        Value::Number(number) => see_number(number, numbers),
        Value::String(text) => Seen::from(text.as_str()),
        Value::Array(_) | Value::Object(_) => {
            let steps = steps.iter().cloned().chain(step).collect();
            Seen::from_object(View { root: root.clone(), steps, numbers })
        }
    }
}

fn see_number(number: &Number, numbers: Numbers) -> Seen {
    let text = number.as_str();
    if let Ok(integer) = text.parse::<i64>()
        && text != "-0"
    {
        return Seen::from(integer);
    }
    if let Ok(integer) = text.parse::<i128>()
        && text != "-0"
    {
        return Seen::from(integer);
    }
    match (text.parse::<f64>(), numbers) {
        (Ok(float), Numbers::Computable) => Seen::from(float),
        // Written as it will be on its way back: of two texts that are equally short and near, others choose the other.
        (Ok(float), Numbers::Exact) if Number::from_f64(float).is_some_and(|back| same_number(text, back.as_str())) => {
            Seen::from(float)
        }
        (Ok(_) | Err(_), _) => Seen::from_object(ExactNumber(number.clone())),
    }
}

/// Whether two decimal texts are the same number.
pub(super) fn same_number(a: &str, b: &str) -> bool {
    matches!((decimal(a), decimal(b)), (Some(a), Some(b)) if a == b)
}

/// A decimal text as sign, digits without zeros at either end, and power of ten of the last digit.
fn decimal(text: &str) -> Option<(bool, String, i64)> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let trimmed = digits.trim_end_matches('0');
    let power = exponent.parse::<i32>().ok()? as i64 - fraction.len() as i64 + (digits.len() - trimmed.len()) as i64;
    let significant = trimmed.trim_start_matches('0');
    if significant.is_empty() {
        Some((negative, String::new(), 0))
    } else {
        Some((negative, significant.to_owned(), power))
    }
}

/// A template's value as JSON.
pub(crate) fn to_json(value: &Seen) -> Result<Value, Error> {
    convert(value, MAX_DEPTH)
}

fn convert(value: &Seen, depth: usize) -> Result<Value, Error> {
    if let Some(view) = value.downcast_object_ref::<View>() {
        return Ok(view.value().clone());
    }
    if let Some(number) = value.downcast_object_ref::<ExactNumber>() {
        return Ok(Value::Number(number.0.clone()));
    }
    let Some(deeper) = depth.checked_sub(1) else { return Err(ours("the value nests too deep")) };
    match value.kind() {
        ValueKind::None => Ok(Value::Null),
        ValueKind::Bool => Ok(Value::Bool(value.is_true())),
        ValueKind::Number => convert_number(value),
        ValueKind::String => Ok(Value::String(value.as_str().unwrap_or_default().to_owned())),
        ValueKind::Seq | ValueKind::Iterable => {
            let mut list = Vec::new();
            for item in value.try_iter()?.checked() {
                let item = item?;
                if !item.is_undefined() {
                    list.push(convert(&item, deeper)?);
                }
            }
            Ok(Value::Array(list))
        }
        ValueKind::Map => {
            let mut object = Map::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                let name = key.as_str().ok_or_else(|| ours("an object's key is not a string"))?;
                let member = value.get_item(&key)?;
                if !member.is_undefined() {
                    object.insert(name.to_owned(), convert(&member, deeper)?);
                }
            }
            Ok(Value::Object(object))
        }
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        _ => Err(ours("the value has no JSON form")),
    }
}

fn convert_number(value: &Seen) -> Result<Value, Error> {
    let number = if value.is_integer() {
        match (i128::try_from(value.clone()), u128::try_from(value.clone())) {
            (Ok(integer), _) => Number::from_i128(integer),
            (Err(_), Ok(integer)) => Number::from_u128(integer),
            (Err(_), Err(_)) => None,
        }
    } else {
        f64::try_from(value.clone()).ok().and_then(Number::from_f64)
    };
    number.map(Value::Number).ok_or_else(|| ours("the number has no JSON form"))
}

/// A value in the middle of text: strings as they are, everything else as JSON.
pub(super) fn to_text(value: &Seen) -> Result<String, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.as_str().unwrap_or_default().to_owned()),
        // Only `{{ a if b }}` without `else` comes here undefined, and it means to say nothing.
        ValueKind::Undefined => Ok(String::new()),
        ValueKind::None => Err(ours("null in the middle of text: give it a default")),
        _ => Ok(to_json(value)?.to_string()),
    }
}

/// The filter `tojson`: compact JSON, numbers exact.
pub(super) fn tojson(value: &Seen) -> Result<String, Error> {
    Ok(to_json(value)?.to_string())
}

/// The filter `float`, which also takes numbers that are kept as written.
pub(super) fn float(
    state: &State<'_, '_>,
    value: &Seen,
    default: Option<Seen>,
    options: Kwargs,
) -> Result<Seen, Error> {
    match value.downcast_object_ref::<ExactNumber>() {
        Some(number) => Ok(see_number(&number.0, Numbers::Computable)),
        None => minijinja::filters::float(state, value, default, options),
    }
}

/// The filter `urlencode`: a value as one segment of a path or one value of a query, so with `/`
/// encoded too (RFC 3986, section 2.3); an object as a whole query.
pub(super) fn urlencode(value: &Seen) -> Result<String, Error> {
    let json = to_json(value)?;
    match json.as_object() {
        None => Ok(encode(&text_of(&json)?)),
        Some(members) => {
            let pairs = members.iter().map(|(key, value)| Ok(format!("{}={}", encode(key), encode(&text_of(value)?))));
            Ok(pairs.collect::<Result<Vec<_>, Error>>()?.join("&"))
        }
    }
}

fn text_of(value: &Value) -> Result<String, Error> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(ours("only text and numbers go into a URL")),
    }
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn ours(message: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("{OURS}{message}"))
}
