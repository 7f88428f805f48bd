// SPDX-License-Identifier: MIT

package monitoring

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/diana-limiter/diana/internal/redistest"
	"github.com/diana-limiter/diana/internal/testproc"
)

// exposed are the time series of a running gateway, by metric.
type exposed map[string][]labels.Labels

// The gateway has every feature with metrics of its own: Redis, a remote configuration, descriptors, TLS,
// several upstreams, a rule that reads bodies, and one that learns costs from responses.
const limits = `
limits:
  - url: /
    rules:
      - {name: local, rpu: 100, unit: minute}
      - {name: global, rpu: 100, unit: minute, scope: global}
  - url: POST /v1
    rules:
      - {name: body, actor: "body:/model", rpu: 100}
      - {name: tokens, actor: account, unit: month, algo: W, rpu: 100000, cost: {answer: openai, reserve: 100}}
`

const descriptors = `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 100}}
`

var adminAddress = regexp.MustCompile(`(?m)^diana: admin on (http://\S+)$`)

// adaptive is for a gateway of its own, because --check rejects it.
const adaptive = "{url: /, rules: [{name: upstream, algo: AC, rpu: 100}]}"

// scrape builds Diana, starts a gateway with all these features and one that adapts, and reads their metrics.
func scrape(t *testing.T) exposed {
	t.Helper()
	dir, file := t.TempDir(), program(t)
	centre := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, limits)
	}))
	t.Cleanup(centre.Close)
	config := write(t, filepath.Join(dir, "diana.yaml"),
		fmt.Sprintf("redis: {url: %s}\nremote: {url: %s/limits}", redistest.Start(t).URL(), centre.URL)+limits)
	shop := write(t, filepath.Join(dir, "shop.yaml"), descriptors)
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(secure.Close)
	cert, key := writePair(t, dir, secure.TLS.Certificates[0])

	found := serve(t, file, "--config", config, "--upstream", centre.URL, "--upstream", secure.URL,
		"--tls-cert", cert, "--tls-key", key, "--check", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--descriptors", shop)
	for name, series := range serve(t, file, "--config", write(t, filepath.Join(dir, "adaptive.yaml"), adaptive), "--upstream", centre.URL) {
		found[name] = append(found[name], series...)
	}
	return found
}

// serve starts a gateway, and reads its metrics.
func serve(t *testing.T, file string, flags ...string) exposed {
	t.Helper()
	log := filepath.Join(t.TempDir(), "log")
	p, err := testproc.Start(log, file, append([]string{"serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	var found exposed
	err = testproc.Poll(testproc.Patience, func() error {
		text, _ := os.ReadFile(log) // without a file nothing is logged
		admin := adminAddress.FindSubmatch(text)
		if admin == nil {
			return fmt.Errorf("no address:\n%s", text)
		}
		found, err = read(string(admin[1]) + "/metrics")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// writePair writes a certificate and its key in PEM.
func writePair(t *testing.T, dir string, pair tls.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	in := func(file, kind string, der []byte) string {
		return write(t, filepath.Join(dir, file), string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	}
	return in("tls.crt", "CERTIFICATE", pair.Certificate[0]), in("tls.key", "PRIVATE KEY", der)
}

// program builds Diana once, with the dependencies of its own module.
func program(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "diana")
	build := exec.Command("go", "build", "-o", file, ".")
	build.Dir = filepath.Join(root, "cmd", "diana")
	build.Env = append(os.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// read returns the time series at a URL.
func read(url string) (exposed, error) {
	response, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	p, err := textparse.New(text, response.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		return nil, err
	}
	found := exposed{}
	for {
		switch entry, err := p.Next(); {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, err
		case entry == textparse.EntrySeries:
			var series labels.Labels
			p.Labels(&series)
			name := series.Get("__name__")
			found[name] = append(found[name], series)
		}
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
