# docker build -t hoplite .
# docker run --rm -v "$PWD:/data" hoplite train cora --model lgc --out model
#
# The first stage has the compiler and builds the wheel, the second has neither compiler nor source.
# Networks need PyTorch, which is not in the image: install the extra `torch` in one of your own.
FROM python:3.11-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY native native
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 hoplite \
    && install --directory --owner hoplite /data
COPY constraints.txt /tmp/constraints.txt
COPY --from=build /wheels /wheels
# The versions of constraints.txt, without its hashes: pip would ask for one of the wheel, too.
RUN grep -E '^[A-Za-z0-9]' /tmp/constraints.txt | sed 's/ \\$//' > /tmp/pins.txt \
    && pip install --no-cache-dir /wheels/*.whl -c /tmp/pins.txt \
    && rm -r /wheels /tmp/constraints.txt /tmp/pins.txt
USER hoplite
WORKDIR /data
ENTRYPOINT ["hoplite"]
CMD ["--help"]
