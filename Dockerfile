# The server alone. Build: docker build -t headwater .
# Run: docker run -p 4437:4437 -v headwater:/data headwater

FROM python:3.13-slim AS build
WORKDIR /src
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY src src
RUN python -m venv /opt/headwater \
    && /opt/headwater/bin/pip install --no-cache-dir -c constraints.txt ".[server,cli]"

FROM python:3.13-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin headwater \
    && install -d -o headwater -g headwater -m 0750 /data
COPY --from=build /opt/headwater /opt/headwater
ENV PATH=/opt/headwater/bin:$PATH PYTHONUNBUFFERED=1
USER headwater
VOLUME /data
EXPOSE 4437
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:4437/health', timeout=4)"]
ENTRYPOINT ["headwater", "serve", "--host", "0.0.0.0", "--data-dir", "/data"]
