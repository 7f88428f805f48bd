// SPDX-License-Identifier: MIT

package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	sent "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/diana-limiter/diana/config"
	"github.com/diana-limiter/diana/internal/descriptors"
)

// XDS is a server that sends limits as Envoy's control planes do: by the aggregated discovery service, with the
// state of the world in each response. A resource is the limits of a domain.
//
// A response with a mistake is rejected with the text of the mistake, and the limits in force stay. While the server
// is away they stay too.
type XDS struct {
	Address string // host:port
	Node    string // the name by which the server knows this program

	Metadata map[string]string // of the node
	Headers  map[string]string // sent at the start of each stream
	TLS      *tls.Config       // nil means none

	// Retry is how long a lost stream or a rejected response is waited for at first, and MostRetry at last. 0 means
	// 3 seconds and 1 minute.
	Retry, MostRetry time.Duration

	MostMessage int // bytes of a response; 0 means 4 MiB
}

// String returns such as "xds://localhost:18000/default", or "xdss://..." with TLS.
func (x *XDS) String() string {
	scheme := "xds"
	if x.TLS != nil {
		scheme = "xdss"
	}
	return scheme + "://" + x.Address + "/" + x.Node
}

// typeURL is the type of the resources.
const typeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// follow offers what the server sends, until ctx ends.
func (x *XDS) follow(ctx context.Context, offer func([]descriptors.File) error, logger *slog.Logger) {
	logger = logger.With("source", x.String())
	conn, err := x.dial()
	if err != nil {
		logger.Error("xDS server", "error", err)
		return
	}
	defer func() { _ = conn.Close() }() // the program has what it needs
	ctx = grpcmetadata.NewOutgoingContext(ctx, grpcmetadata.New(x.Headers))
	least, most := cmp.Or(x.Retry, 3*time.Second), cmp.Or(x.MostRetry, time.Minute)
	for wait := least; ctx.Err() == nil; wait = min(2*wait, max(most, least)) {
		answered, err := x.stream(ctx, conn, offer, logger)
		if ctx.Err() != nil {
			return
		}
		if answered {
			wait = least
		}
		logger.Warn("xDS server away, the limits stay", "error", err, "retry_after", wait)
		pause(ctx, wait/2+rand.N(wait/2+1)) // not all programs at once
		conn.ResetConnectBackoff()
	}
}

func (x *XDS) dial() (*grpc.ClientConn, error) {
	secure := insecure.NewCredentials()
	if x.TLS != nil {
		secure = credentials.NewTLS(x.TLS)
	}
	return grpc.NewClient(x.Address, grpc.WithTransportCredentials(secure),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(x.MostMessage, mostMessage))),
		// As often as a server of package grpc permits at most.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 5 * time.Minute, Timeout: 20 * time.Second}))
}

// stream offers the responses of one stream, and returns why it has ended, and whether the server has answered.
func (x *XDS) stream(ctx context.Context, conn *grpc.ClientConn, offer func([]descriptors.File) error, logger *slog.Logger) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	// Without a version the server sends all. After a restart it could use the names of versions again.
	request := &discovery.DiscoveryRequest{Node: x.node(), TypeUrl: typeURL}
	rejected := ""
	for {
		if err := stream.Send(request); err != nil {
			_, err = stream.Recv() // says why
			return answered, err
		}
		response, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		request = &discovery.DiscoveryRequest{Node: request.GetNode(), TypeUrl: typeURL, VersionInfo: request.GetVersionInfo(), ResponseNonce: response.GetNonce()}
		files, err := filesOf(response)
		if err == nil {
			err = offer(files)
		}
		if err == nil {
			request.VersionInfo, rejected = response.GetVersionInfo(), ""
			logger.Debug("limits accepted", "version", response.GetVersionInfo())
			continue
		}
		text := mistakes(err)
		request.ErrorDetail = &status.Status{Code: int32(code.Code_INVALID_ARGUMENT), Message: text}
		if text == rejected { // a server that sends it again at once, must not keep both busy
			pause(ctx, cmp.Or(x.Retry, 3*time.Second))
		} else {
			logger.Error("limits rejected", "version", response.GetVersionInfo(), "error", text)
		}
		rejected = text
	}
}

// pause waits, until ctx ends at the latest.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (x *XDS) node() *core.Node {
	n := &core.Node{Id: x.Node, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	for key, value := range x.Metadata {
		n.Metadata.Fields[key] = structpb.NewStringValue(value)
	}
	return n
}

// filesOf returns the resources of a response as files in JSON, which is YAML too.
func filesOf(r *discovery.DiscoveryResponse) ([]descriptors.File, error) {
	if r.GetTypeUrl() != typeURL {
		return nil, fmt.Errorf("the type %q, expected %s", r.GetTypeUrl(), typeURL)
	}
	files := make([]descriptors.File, 0, len(r.GetResources()))
	for i, resource := range r.GetResources() {
		var c sent.RateLimitConfig
		if err := resource.UnmarshalTo(&c); err != nil {
			return nil, fmt.Errorf("resources[%d]: %w", i, err)
		}
		name := cmp.Or(c.GetName(), fmt.Sprintf("resources[%d]", i))
		text, err := json.Marshal(fileJSON{c.GetDomain(), descriptorsOf(c.GetDescriptors())})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, descriptors.File{Name: name, Data: text})
	}
	return files, nil
}

// These are the mappings of a file. The limits of a server have no keys of Diana.
type (
	fileJSON struct {
		Domain      string           `json:"domain"`
		Descriptors []descriptorJSON `json:"descriptors"`
	}
	descriptorJSON struct {
		Key         string           `json:"key"`
		Value       string           `json:"value,omitempty"`
		RateLimit   *limitJSON       `json:"rate_limit,omitempty"`
		Shadow      bool             `json:"shadow_mode,omitempty"`
		Quota       bool             `json:"quota_mode,omitempty"`
		Detailed    bool             `json:"detailed_metric,omitempty"`
		Descriptors []descriptorJSON `json:"descriptors,omitempty"`
	}
	limitJSON struct {
		Unit      string     `json:"unit,omitempty"`
		Requests  uint32     `json:"requests_per_unit"`
		Unlimited bool       `json:"unlimited,omitempty"`
		Name      string     `json:"name,omitempty"`
		Replaces  []nameJSON `json:"replaces,omitempty"`
	}
	nameJSON struct {
		Name string `json:"name"`
	}
)

func descriptorsOf(list []*sent.RateLimitDescriptor) []descriptorJSON {
	made := make([]descriptorJSON, len(list))
	for i, d := range list {
		made[i] = descriptorJSON{
			Key: d.GetKey(), Value: d.GetValue(), RateLimit: limitOf(d.GetRateLimit()), Shadow: d.GetShadowMode(),
			Quota: hasQuotaMode(d), Detailed: d.GetDetailedMetric(), Descriptors: descriptorsOf(d.GetDescriptors()),
		}
	}
	return made
}

func limitOf(l *sent.RateLimitPolicy) *limitJSON {
	if l == nil {
		return nil
	}
	made := &limitJSON{Requests: l.GetRequestsPerUnit(), Unlimited: l.GetUnlimited(), Name: l.GetName()}
	if u := l.GetUnit(); u != sent.RateLimitUnit_UNKNOWN {
		made.Unit = descriptors.Unit(u).String() // the numbers are equal, and the module of these messages lacks some names
	}
	for _, r := range l.GetReplaces() {
		made.Replaces = append(made.Replaces, nameJSON{r.GetName()})
	}
	return made
}

// quotaMode is the field quota_mode of a descriptor, which is newer than the module of these messages.
const quotaMode protowire.Number = 7

func hasQuotaMode(d *sent.RateLimitDescriptor) (quota bool) {
	unknown := d.ProtoReflect().GetUnknown()
	for len(unknown) > 0 {
		number, wire, n := protowire.ConsumeField(unknown)
		if n < 0 {
			return quota
		}
		if number == quotaMode && wire == protowire.VarintType {
			_, _, tag := protowire.ConsumeTag(unknown)
			v, _ := protowire.ConsumeVarint(unknown[tag:n])
			quota = v != 0
		}
		unknown = unknown[n:]
	}
	return quota
}

// mistakes returns the text of a rejection. It has no lines and columns, because the server has no file.
func mistakes(err error) string {
	var list config.Errors
	if !errors.As(err, &list) {
		return err.Error()
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = e.Message
		if e.Line > 0 {
			lines[i] = e.File + ": " + e.Message
		}
	}
	return strings.Join(lines, "\n")
}
