package executor

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/otelproto/otelproto-go/examples/invoke/invokepb"
)

const (
	componentPause   = 100 * time.Millisecond
	componentTimeout = 10 * time.Second
)

// components are metadata by version, which never change. Which version is the latest does, so that is asked every time: a cache
// of "the latest" is how workers come to run on what was the latest once.
type components struct {
	client  invokepb.ComponentsClient
	fetches singleflight.Group // by version

	// mu guards known. Nothing blocks while it is held.
	mu    sync.Mutex
	known map[uint64]*invokepb.MetadataResponse
}

func newComponents(client invokepb.ComponentsClient) *components {
	return &components{client: client, known: make(map[uint64]*invokepb.MetadataResponse)}
}

// latest returns the metadata of the version that is the latest now.
func (c *components) latest(ctx context.Context) (*invokepb.MetadataResponse, error) {
	response, err := c.client.LatestVersion(ctx, &invokepb.LatestVersionRequest{})
	if err != nil {
		return nil, fmt.Errorf("executor: asking for the latest version: %w", err)
	}
	version := response.GetVersion()
	if metadata := c.version(version); metadata != nil {
		return metadata, nil
	}
	fetched, err, _ := c.fetches.Do(strconv.FormatUint(version, 10), func() (any, error) {
		if metadata := c.version(version); metadata != nil {
			return metadata, nil // came between the two
		}
		// Others wait for it too, so the shard that asked first doesn't take it along when it moves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), componentTimeout)
		defer cancel()
		metadata, err := c.client.Metadata(ctx, &invokepb.MetadataRequest{Version: version})
		if err != nil {
			return nil, fmt.Errorf("executor: fetching version %d: %w", version, err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.known[version] = metadata
		return metadata, nil
	})
	if err != nil {
		return nil, err
	}
	metadata, _ := fetched.(*invokepb.MetadataResponse)
	return metadata, nil
}

func (c *components) version(version uint64) *invokepb.MetadataResponse {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[version]
}
