//! Which input snapshots a dynamic table reflects.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Maps each input table to the snapshot a refresh read; `None` where the table had none yet.
///
/// JSON holds snapshot ids as text, because they exceed what JSON numbers hold exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier(pub BTreeMap<String, Option<i64>>);

impl Serialize for Frontier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = self.0.iter().map(|(table, id)| (table, id.map(|id| id.to_string())));
        serializer.collect_map(texts)
    }
}

impl<'de> Deserialize<'de> for Frontier {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = BTreeMap::<String, Option<String>>::deserialize(deserializer)?;
        let mut inputs = BTreeMap::new();
        for (table, id) in texts {
            let id = id.map(|id| id.parse().map_err(serde::de::Error::custom)).transpose()?;
            inputs.insert(table, id);
        }
        Ok(Frontier(inputs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_every_digit() {
        let frontier = Frontier(BTreeMap::from([("b.t".into(), Some(i64::MAX)), ("b.u".into(), None)]));
        let json = serde_json::to_string(&frontier).expect("serialisable");
        assert_eq!(json, r#"{"b.t":"9223372036854775807","b.u":null}"#);
        assert_eq!(serde_json::from_str::<Frontier>(&json).expect("own json"), frontier);
    }
}
