// Keeps the frame when a view cannot be drawn.

import { Component, type ComponentChildren } from "preact";

import { useWords } from "../i18n";
import { Button } from "./basics";

interface Props {
  /** The address of the view: a new one draws it again. */
  at: string;
  children: ComponentChildren;
}

interface State {
  error: Error | null;
}

/** Shows its children, or that drawing them failed. */
export class Boundary extends Component<Props, State> {
  override state: State = { error: null };

  static getDerivedStateFromError(error: unknown): State {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override componentDidCatch(error: unknown): void {
    console.error(error);
  }

  override componentDidUpdate(before: Props): void {
    if (this.state.error !== null && before.at !== this.props.at) this.setState({ error: null });
  }

  render() {
    if (this.state.error === null) return this.props.children;
    return <Broken error={this.state.error} again={() => this.setState({ error: null })} />;
  }
}

function Broken({ error, again }: { error: Error; again: () => void }) {
  const { t } = useWords();
  return (
    <div id="broken" class="state error" role="alert">
      <p>{t.frame.broken}</p>
      <p class="note">{error.message}</p>
      <Button onClick={again}>{t.common.retry}</Button>
    </div>
  );
}
