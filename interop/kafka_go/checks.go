package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"strings"
	"time"
)

const limit = 60 * time.Second

// checks runs checks one after the other, each within a time limit, and prints a line for each.
type checks struct{ failures int }

func (c *checks) check(name string, action func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := action(ctx); err != nil {
		c.failures++
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		fmt.Printf("FAILED %s: %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
		return
	}
	fmt.Printf("ok %s\n", name)
}

func expect(what string, actual, expected any) error {
	if !reflect.DeepEqual(actual, expected) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, actual)
	}
	return nil
}

// first is the first error of several, so that a check reads as a list.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// version is the client's, as it was built in.
func version() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/segmentio/kafka-go" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "?"
}

// until waits for a state that something else brings about.
func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
