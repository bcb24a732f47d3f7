# Builds and runs Embrasure Flow as an unprivileged user.
# Untested: no Docker engine was at hand when this was written.
#
#   docker build -t embrasure-flow .
#   docker run -e FLOW_POSTGRES_URL -v ./flow:/flow -p 127.0.0.1:9464:9464 embrasure-flow
#
# /flow holds flow.toml, the transformations, the state and the warehouse. For the published port,
# flow.toml needs [http] listen = "0.0.0.0:9464" and token_env.

FROM rust:1.95.0-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends clang libclang-dev cmake pkg-config \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p flow-daemon \
    && cp "$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/embrasure-flow" /embrasure-flow

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /flow embrasure-flow
COPY --from=build /embrasure-flow /usr/local/bin/embrasure-flow
USER 10001
WORKDIR /flow
VOLUME /flow
EXPOSE 9464
STOPSIGNAL SIGTERM
ENTRYPOINT ["embrasure-flow"]
CMD ["run", "--init"]
