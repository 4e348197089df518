package statshttp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.opentelemetry.io/otel"
)

// Option sets up [Handler]. Options come from this package's With functions only.
type Option interface{ apply(c *config) error }

type config struct {
	title    string
	sections []Section
	traceURL func(traceID, spanID string) string
}

func newConfig(opts []Option) config {
	c := config{title: defaultTitle()}

	for _, o := range opts {
		if o == nil {
			continue
		}

		if err := o.apply(&c); err != nil {
			otel.Handle(fmt.Errorf("statshttp: %w", err))
		}
	}

	return c
}

func defaultTitle() string {
	if len(os.Args) > 0 && os.Args[0] != "" {
		return filepath.Base(os.Args[0])
	}

	return "gRPC messages"
}

type optionFunc func(c *config) error

func (f optionFunc) apply(c *config) error { return f(c) }

// WithTitle sets the page's title, which tells the tabs of several processes apart. The default is the program's name.
func WithTitle(title string) Option {
	return optionFunc(func(c *config) error {
		if title == "" {
			return errors.New("WithTitle: empty, expected a title")
		}

		c.title = title

		return nil
	})
}

// WithSection adds a table to the end of the page; several are shown in the order in which they are given. There is none by default.
func WithSection(s Section) Option {
	return optionFunc(func(c *config) error {
		if s == nil {
			return errors.New("WithSection: nil, expected a Section")
		}

		c.sections = append(c.sections, s)

		return nil
	})
}

// WithTraceURL links the exemplars of a registry that has them ([stats.WithExemplars]) to the page of a trace elsewhere: f gives
// its address, http or https, from the trace's and the span's number in hexadecimal digits; an empty one is no link. By
// default the numbers are shown without links.
// f is called by several goroutines at once.
func WithTraceURL(f func(traceID, spanID string) string) Option {
	return optionFunc(func(c *config) error {
		if f == nil {
			return errors.New("WithTraceURL: nil, expected a function")
		}

		c.traceURL = f

		return nil
	})
}
