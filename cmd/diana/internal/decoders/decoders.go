// SPDX-License-Identifier: MIT

package decoders

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/diana-limiter/diana/internal/respond"
)

const (
	decoderMemory = 64 << 20 // of all responses that are decoded at one time
	decoderSpare  = 16 << 20 // while less is free, the upstream is asked for answers without br and zstd
)

// Decoders decode responses in br and zstd for rules whose cost is known with the response. The limiter itself
// decodes gzip, whose window is small. Decoders reserve memory before they allocate it. A response for which
// no memory is free passes unread.
type Decoders struct {
	used     atomic.Int64 // bytes
	noMemory atomic.Int64 // responses that passed unread because other responses had the memory
	tooLarge atomic.Int64 // responses that passed unread because they need a window over largestWindow
}

// ByCoding returns the decoders by the names of their codings.
func (d *Decoders) ByCoding() map[string]func(io.Reader) (io.Reader, error) {
	byCoding := map[string]func(io.Reader) (io.Reader, error){}
	for name, c := range map[string]coding{"br": brotliCoding, "zstd": zstdCoding} {
		byCoding[name] = func(r io.Reader) (io.Reader, error) { return d.open(c, r) }
	}
	return byCoding
}

// reserve reserves n bytes more, or returns -n bytes. It reports whether there is memory.
func (d *Decoders) reserve(n int64) bool {
	if d.used.Add(n) > decoderMemory && n > 0 {
		d.used.Add(-n)
		return false
	}
	return true
}

// Spare is a filter in front of the upstream. While there is little memory left, it asks the upstream for answers
// without br and zstd, if rules read them.
func (d *Decoders) Spare(next http.Handler) http.Handler {
	if next == nil {
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d.used.Load() > decoderMemory-decoderSpare && respond.Reads(w) {
			r = r.Clone(r.Context())
			r.Header["Accept-Encoding"] = withoutCodings(r.Header["Accept-Encoding"])
		}
		next.ServeHTTP(w, r)
	})
}

// withoutCodings returns the lines of an Accept-Encoding without br and zstd, and "identity" if nothing is left.
func withoutCodings(lines []string) []string {
	var kept []string
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(member, ";")
			switch name = strings.ToLower(strings.TrimSpace(name)); name {
			case "", "br", "zstd":
			case "*": // stands for br and zstd too
			default:
				kept = append(kept, strings.TrimSpace(member))
			}
		}
	}
	if kept == nil {
		return []string{"identity"}
	}
	return []string{strings.Join(kept, ", ")}
}

// Register adds the metrics of the decoders.
func (d *Decoders) Register(r *prometheus.Registry) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "diana_decoder_memory_bytes",
		Help: "Memory of decoders for responses in br and zstd whose cost is read, at most 64 MiB.",
	}, func() float64 { return float64(d.used.Load()) }))
	for reason, n := range map[string]*atomic.Int64{"memory": &d.noMemory, "window": &d.tooLarge} {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name:        "diana_decoder_unread_total",
			Help:        "Responses in br and zstd that passed unread, because no memory was free for a decoder, or because they need a window over 8 MiB.",
			ConstLabels: prometheus.Labels{"reason": reason},
		}, func() float64 { return float64(n.Load()) }))
	}
}
