//! Which text format an asker gets.

/// A text format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// Prometheus' own, version 0.0.4, which everybody reads.
    #[default]
    Prometheus,
}

impl Format {
    /// The value of `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The value of `format` in a request.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMetrics => "openmetrics",
            Self::Prometheus => "prometheus",
        }
    }

    /// By its [`Format::name`].
    pub fn named(name: &str) -> Option<Self> {
        [Self::OpenMetrics, Self::Prometheus].into_iter().find(|format| format.name() == name)
    }

    /// What suits a header `Accept` best (RFC 9110 §12.5.1). Who takes neither, or says nothing, gets
    /// Prometheus' format.
    pub fn accepted(accept: &str) -> Self {
        let mut best = (Self::default(), 0.0);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let (mut quality, mut version) = (1.0, None);
            for parameter in parts {
                let Some((name, value)) = parameter.split_once('=') else { continue };
                match name.trim().to_ascii_lowercase().as_str() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            let is_known = |versions: &[&str]| version.is_none_or(|one| versions.contains(&one));
            let format = match kind.to_ascii_lowercase().as_str() {
                "application/openmetrics-text" if is_known(&["1.0.0"]) => Self::OpenMetrics,
                "text/plain" | "text/*" | "*/*" if is_known(&["0.0.4"]) => Self::Prometheus,
                _ => continue,
            };
            if quality > best.1 {
                best = (format, quality);
            }
        }
        best.0
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn an_asker_gets_what_it_likes_best() {
        for (accept, wanted) in [
            ("", Format::Prometheus),
            ("*/*", Format::Prometheus),
            ("image/png", Format::Prometheus),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("application/openmetrics-text; version=\"1.0.0\"", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Format::Prometheus),
            ("application/openmetrics-text;q=0, text/plain;q=0.1", Format::Prometheus),
            ("text/plain;q=0.2, application/openmetrics-text;q=0.3", Format::OpenMetrics),
            ("text/plain;version=0.0.4, application/openmetrics-text;q=0.9", Format::Prometheus),
            ("application/openmetrics-text;q=x", Format::Prometheus),
            // What Prometheus 2.42 sends.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(accept), wanted, "{accept}");
        }
        assert_eq!(Format::named("openmetrics"), Some(Format::OpenMetrics));
        assert_eq!(Format::named("json"), None);
    }
}
