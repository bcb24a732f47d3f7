//! Namespaces: listing, making, describing and removing them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::error::{Refusal, ServeError};
use super::name::{self, View};
use super::request::{CreateNamespace, Request, UpdateProperties};
use super::{Inner, Reply, ServedCatalog};
use crate::catalog::serve::{
    EXISTS_PROPERTY, Recorded, insert_namespace, namespace_exists, namespace_has_content, namespace_properties,
    remove_namespace, remove_namespace_property, set_namespace_property,
};

/// Counts the names on the largest page.
const PAGE_MAX: usize = 1000;

/// Says which part of a list is wanted.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Is where the part before ended, empty for the first one; `None` wants everything at once.
    pub token: Option<String>,
    /// Is the number of names wanted; at most a thousand are given.
    pub size: Option<usize>,
}

impl Page {
    /// Gives the last name before this page, and how many names it has.
    ///
    /// # Errors
    /// A refusal of a page without names.
    pub(super) fn bounds(&self) -> Result<(&str, usize), ServeError> {
        match (&self.token, self.size) {
            (_, Some(0)) => Err(ServeError::bad("pageSize must be at least 1")),
            (None, _) => Ok(("", usize::MAX)),
            (Some(token), size) => Ok((token, size.unwrap_or(PAGE_MAX).min(PAGE_MAX))),
        }
    }
}

/// Makes the document of a list of which one name more than fits was asked for.
pub(super) fn page(key: &str, mut names: Vec<String>, size: usize, show: impl Fn(&str) -> Value) -> Reply {
    let more = names.len() > size;
    names.truncate(size);
    let mut document = json!({ key: names.iter().map(|name| show(name)).collect::<Vec<_>>() });
    if let (true, Some(last)) = (more, names.last()) {
        document["next-page-token"] = json!(last);
    }
    Reply::Json(document.to_string().into_bytes())
}

impl ServedCatalog {
    /// Lists the namespaces right below `parent`, or the first level.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`] if there is no such parent.
    pub async fn namespaces(&self, _view: View, parent: Vec<String>, wanted: Page) -> Result<Reply, ServeError> {
        self.run(move |inner| namespaces(inner, &parent, &wanted)).await
    }

    /// Makes a namespace, and those above it.
    ///
    /// # Errors
    /// [`Refusal::Exists`], and [`Refusal::BadRequest`] or [`Refusal::Forbidden`] for its name.
    pub async fn create_namespace(&self, view: View, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            inner.answer(&request, |key| {
                let body: CreateNamespace = request.read()?;
                let properties = checked(body.properties.unwrap_or_default())?;
                let name = name::new_namespace(&body.namespace)?;
                let document = json!({"namespace": body.namespace, "properties": properties});
                inner
                    .change(key, |tx| {
                        if namespace_exists(tx, &name)? {
                            return Ok(Err(ServeError::exists("namespace", &name)));
                        }
                        insert_namespace(tx, &name, &properties)?;
                        Ok(Ok(documented(&document)))
                    })
                    .flatten()
            })
        })
        .await
    }

    /// Describes a namespace.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`].
    pub async fn namespace(&self, _view: View, levels: Vec<String>) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            let name = name::existing(&levels);
            let properties = inner.reader.namespace(&name)?;
            let properties = properties.ok_or_else(|| ServeError::no_namespace(&name))?;
            let document = json!({"namespace": levels, "properties": properties});
            Ok(Reply::Json(document.to_string().into_bytes()))
        })
        .await
    }

    /// Removes an empty namespace.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`], and [`Refusal::NotEmpty`] while something is in it.
    pub async fn drop_namespace(&self, view: View, levels: Vec<String>, request: Request) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            let name = name::existing(&levels);
            inner.answer(&request, |key| {
                inner
                    .change(key, |tx| {
                        if !namespace_exists(tx, &name)? {
                            return Ok(Err(ServeError::no_namespace(&name)));
                        }
                        if namespace_has_content(tx, &name)? {
                            let message = format!("namespace {name} is not empty");
                            return Ok(Err(ServeError::new(Refusal::NotEmpty, message)));
                        }
                        remove_namespace(tx, &name)?;
                        Ok(Ok(Recorded::default()))
                    })
                    .flatten()
            })
        })
        .await
    }

    /// Sets and removes properties of a namespace.
    ///
    /// # Errors
    /// [`Refusal::NoNamespace`], and [`Refusal::Unprocessable`] if a key is to be set and removed.
    pub async fn update_namespace(
        &self,
        view: View,
        levels: Vec<String>,
        request: Request,
    ) -> Result<Reply, ServeError> {
        self.run(move |inner| {
            view.check_live()?;
            let name = name::existing(&levels);
            inner.answer(&request, |key| {
                let body: UpdateProperties = request.read()?;
                let updates = checked(body.updates.unwrap_or_default())?;
                let removals: BTreeSet<String> = body.removals.unwrap_or_default().into_iter().collect();
                if let Some(both) = removals.iter().find(|key| updates.contains_key(*key)) {
                    let message = format!("property '{both}' is to be set and removed at once");
                    return Err(ServeError::new(Refusal::Unprocessable, message));
                }
                inner
                    .change(key, |tx| update_properties(tx, &name, &updates, &removals))
                    .flatten()
            })
        })
        .await
    }
}

fn update_properties(
    tx: &rusqlite::Transaction<'_>,
    name: &str,
    updates: &BTreeMap<String, String>,
    removals: &BTreeSet<String>,
) -> rusqlite::Result<Result<Recorded, ServeError>> {
    if !namespace_exists(tx, name)? {
        return Ok(Err(ServeError::no_namespace(name)));
    }
    // One that only its tables told of is there by itself from here on.
    insert_namespace(tx, name, &BTreeMap::new())?;
    let present = namespace_properties(tx, name)?;
    let (removed, missing): (Vec<&String>, Vec<&String>) = removals.iter().partition(|key| present.contains_key(*key));
    for key in &removed {
        remove_namespace_property(tx, name, key)?;
    }
    for (key, value) in updates {
        set_namespace_property(tx, name, key, value)?;
    }
    let updated: Vec<&String> = updates.keys().collect();
    Ok(Ok(documented(
        &json!({"updated": updated, "removed": removed, "missing": missing}),
    )))
}

fn documented(document: &Value) -> Recorded {
    Recorded {
        body: Some(document.to_string()),
        ..Recorded::default()
    }
}

fn checked(properties: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ServeError> {
    match properties.contains_key(EXISTS_PROPERTY) {
        true => Err(ServeError::bad("property 'exists' is the catalog's own")),
        false => Ok(properties),
    }
}

fn namespaces(inner: &Inner, parent: &[String], wanted: &Page) -> Result<Reply, ServeError> {
    let (after, size) = wanted.bounds()?;
    let all = inner.reader.namespaces()?;
    let above = match parent {
        [] => String::new(),
        levels => format!("{}.", name::existing(levels)),
    };
    let parent_is = |name: &String| format!("{name}.") == above || name.starts_with(&above);
    if !parent.is_empty() && !all.iter().any(parent_is) {
        return Err(ServeError::no_namespace(&name::existing(parent)));
    }
    let below = all.iter().filter_map(|name| {
        let first = name.strip_prefix(&above)?.split('.').next()?;
        Some(format!("{above}{first}"))
    });
    let children: BTreeSet<String> = below.filter(|name| name.as_str() > after).collect();
    let names = children.into_iter().take(size.saturating_add(1)).collect();
    Ok(page("namespaces", names, size, |name| json!(name::levels(name))))
}
