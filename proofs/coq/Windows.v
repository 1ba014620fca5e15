(* The meeting lemma for windows of time.

   Some words are hubs: a task t may need that the tasks deps t have been absorbed by
   its hub (a score that was formed earlier).  Cut the execution into windows of L
   arrivals of words that are not hubs.  A window sees at most M + L of these.  If the
   hub of t neither was in fast memory when the window began nor was loaded in it, then
   all the inputs that t and deps t need are seen in one window, and they meet there.

   window_meeting: for every valid execution there are a list paid of pairs of words, a
   list far of hubs, and numbers with
     length paid <= (M + L - 1) arrivals,   length far <= k M + reloads,
     k L <= arrivals,                       arrivals + reloads <= traffic,
   such that for every task t saved in w either hub_of t is in far, or paid holds all
   pairs of words needed by t and deps t that are inputs or w.
   A load pays for its arrival; a word made anew arrives only if it is stored before
   it is dropped, and that store pays.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting.
Import ListNotations.

Section Windows.
Context {X : model}.
Notation word := (word X).
Notation task := (task X).
Notation event := (event X).
Notation state := (state X).
Variables M L : nat.
Variable hub : word -> bool.
Variable hub_of : task -> word.
Variable deps : task -> list task.
Hypothesis L_positive : 0 < L.
Hypothesis hubs_made : forall w, hub w = true -> input w = false.
Hypothesis outs_needed : forall t : task, incl (outs t) (needs t).
Hypothesis deps_ready : forall (t : task) c, ready t c -> forall t', In t' (deps t) ->
  hub (hub_of t) = true /\ In t' (c (hub_of t)).

Definition same : forall x y : word, {x = y} + {x <> y} := word_dec X.
Definition hub_in (w : word) : list word := if hub w then [w] else [].

(* Looking ahead: w is stored before it is dropped or made anew. *)
Fixpoint useful (w : word) (es : list event) : bool :=
  match es with
  | [] => false
  | (Store x | Add x) :: es => if same x w then true else useful w es
  | (New x | Drop x) :: es => if same x w then false else useful w es
  | (Load _ | Do _) :: es => useful w es
  end.

(* The words that count: inputs, and made words that will be stored; no hubs. *)
Definition relevant (es : list event) (w : word) : bool :=
  if hub w then false else if input w then true else useful w es.

(* The pairs of t that count for its copy in w have met. *)
Definition met_by_task (paid : list (word * word)) (t : task) (w : word) : Prop :=
  forall x y, In x (flat_map needs (t :: deps t)) -> In y (flat_map needs (t :: deps t)) -> x <> y ->
  (input x = true \/ x = w) -> (input y = true \/ y = w) -> met paid x y.

(* In state s, with the events es still to come: k windows are over; the present one
   has had r arrivals and has seen the words in seen; far holds the hubs given up,
   spent words have been loaded or stored, and the words in debt have arrived and are
   still to be stored. *)
Record window (s : state) (es : list event) (k r arrivals reloads spent : nat)
    (seen far : list word) (paid : list (word * word)) (debt : list word) : Prop := {
  w_count : r <= L /\ k * L + r <= arrivals;
  w_spent : arrivals + reloads <= spent + length debt;
  w_debt : NoDup debt /\ forall w, In w debt -> In w (fast s) /\ useful w es = true;
  w_seen : NoDup seen /\ length seen <= M + r;
  w_fast : forall w, In w (fast s) -> relevant es w = true -> In w seen;
  w_size : length (fast s) <= M /\ NoDup (fast s);
  w_met : forall x y, In x seen -> In y seen -> x <> y -> met paid x y;
  w_paid : length paid <= (M + L - 1) * arrivals;
  w_far : length far <= k * M + reloads;
  w_hub : forall h t, hub h = true -> In t (content s h) ->
    In h far \/ (In h (fast s) /\ forall x, In x (needs t) -> input x = true -> In x seen);
  w_absorbed : forall w t, hub w = false ->
    (In t (content s w) /\ useful w es = true) \/ In t (saved s w) ->
    In (hub_of t) far \/ met_by_task paid t w
}.

Lemma hubs_length (f : list word) : length (flat_map hub_in f) <= length f.
Proof.
  induction f as [| w f IH]; cbn; [ lia | ].
  unfold hub_in at 1. destruct (hub w); cbn; lia.
Qed.

Lemma filter_length (f : word -> bool) l : length (filter f l) <= length l.
Proof. induction l as [| a l IH]; cbn; [ lia | destruct (f a); cbn; lia ]. Qed.

Lemma in_hub_in h : hub h = true -> In h (hub_in h).
Proof. unfold hub_in. intros ->. now left. Qed.

(* A new window begins: what was seen is forgotten but for what is in fast memory. *)
Lemma window_restart s es k arrivals reloads spent seen far paid debt :
  window s es k L arrivals reloads spent seen far paid debt ->
  window s es (S k) 0 arrivals reloads spent (filter (relevant es) (fast s))
    (flat_map hub_in (fast s) ++ far) paid debt.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Hu Ab]. split; auto.
  - cbn. lia.
  - split; [ now apply NoDup_filter | ]. pose proof (filter_length (relevant es) (fast s)). lia.
  - intros w Hw Hr. apply filter_In. auto.
  - intros x y Hx Hy. apply filter_In in Hx as [Hx Hx'], Hy as [Hy Hy']. auto.
  - rewrite app_length. pose proof (hubs_length (fast s)). cbn. lia.
  - intros h t Hh H. left. apply in_or_app.
    destruct (Hu h t Hh H) as [? | [Hf _]]; [ now right | left ].
    apply in_flat_map. exists h. split; [ exact Hf | now apply in_hub_in ].
  - intros w t Hw H. destruct (Ab w t Hw H); [ left; apply in_or_app; now right | now right ].
Qed.

Lemma met_by_task_incl paid paid' t w :
  incl paid paid' -> met_by_task paid t w -> met_by_task paid' t w.
Proof. intros I H x y Hx Hy N Ix Iy. destruct (H x y Hx Hy N Ix Iy); [ left | right ]; auto. Qed.

(* What an absorbed task had before the event. *)
Definition absorbed_before (s s' : state) (e : event) (es : list event) : Prop :=
  forall w t, hub w = false ->
  (In t (content s' w) /\ useful w es = true) \/ In t (saved s' w) ->
  (In t (content s w) /\ useful w (e :: es) = true) \/ In t (saved s w).

(* An event that brings in no relevant word. *)
Lemma window_quiet s s' e es k r arrivals reloads spent seen far paid debt
    reloads' spent' far' debt' :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  length (fast s') <= M -> NoDup (fast s') ->
  (forall w, In w (fast s') -> relevant es w = true -> In w (fast s) /\ relevant (e :: es) w = true) ->
  (forall h t, hub h = true -> In t (content s' h) -> In h far' \/
     In t (content s h) /\ (In h (fast s) -> In h (fast s'))) ->
  absorbed_before s s' e es ->
  incl far far' -> length far' <= k * M + reloads' ->
  arrivals + reloads' <= spent' + length debt' -> NoDup debt' ->
  (forall w, In w debt' -> In w (fast s') /\ useful w es = true) ->
  window s' es k r arrivals reloads' spent' seen far' paid debt'.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Hu Ab] HM HN Hf Hs Ha If Hl Hd ND HD.
  split; auto.
  - intros w Hw Hr. apply F; now apply Hf.
  - intros h t Hh H. destruct (Hs h t Hh H) as [? | [H1 H2]]; [ now left | ].
    destruct (Hu h t Hh H1) as [? | [? ?]]; [ left; auto | right; auto ].
  - intros w t Hw H. destruct (Ab w t Hw (Ha w t Hw H)); [ left; auto | now right ].
Qed.

(* A relevant word w arrives, by Load or New. *)
Lemma window_arrive s s' e es k r arrivals reloads spent seen far paid debt w spent' debt' :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  fast s' = w :: fast s -> ~ In w (fast s) -> length (fast s') <= M -> relevant es w = true ->
  (forall x, x <> w -> useful x (e :: es) = useful x es) ->
  (forall h, hub h = true -> content s' h = content s h) ->
  absorbed_before s s' e es ->
  S arrivals + reloads <= spent' + length debt' -> NoDup debt' ->
  (forall x, In x debt' -> In x (fast s') /\ useful x es = true) ->
  exists k' r' seen' far' paid',
    window s' es k' r' (S arrivals) reloads spent' seen' far' paid' debt'.
Proof.
  intros W E Hw HM Hrel Hu Ec Ha Hd ND HD.
  assert (Hrl : forall x, In x (fast s) -> relevant es x = true -> relevant (e :: es) x = true).
  { intros x Hx. unfold relevant. destruct (hub x), (input x); trivial.
    rewrite Hu; [ trivial | ]. intros ->. contradiction. }
  (* when w was not among the words seen, and there is room for an arrival *)
  assert (K : forall k r seen far, window s (e :: es) k r arrivals reloads spent seen far paid debt ->
    r < L -> ~ In w seen ->
    window s' es k (S r) (S arrivals) reloads spent' (w :: seen) far (paid ++ meets w seen) debt').
  { clear W k r seen far. intros k r seen far [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Hb Ab] Hr Hs.
    split; auto.
    - lia.
    - split; [ now constructor | cbn; lia ].
    - rewrite E. intros x [<- | Hx] Hx'; [ now left | right; auto ].
    - split; [ exact HM | ]. rewrite E. now constructor.
    - intros x y [<- | Hx] [<- | Hy] Hxy; rewrite met_app; [ congruence | | | ].
      + right. now apply meets_met.
      + right. destruct (meets_met w seen x Hx); [ now right | now left ].
      + left. auto.
    - rewrite app_length. unfold meets. rewrite map_length. lia.
    - intros h t Hh H. rewrite Ec in H by exact Hh.
      destruct (Hb h t Hh H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | ]. intros x Hx' Hi. right. auto.
    - intros x t Hx H. destruct (Ab x t Hx (Ha x t Hx H)) as [? | H']; [ now left | right ].
      revert H'. apply met_by_task_incl, incl_appl, incl_refl. }
  destruct (in_dec same w seen) as [Hs | Hs].
  - exists k, r, seen, far, paid.
    destruct W as [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Fa Hb Ab]. split; auto.
    + rewrite E. intros x [<- | Hx] Hx'; auto.
    + split; [ exact HM | ]. rewrite E. now constructor.
    + lia.
    + intros h t Hh H. rewrite Ec in H by exact Hh.
      destruct (Hb h t Hh H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | exact Hx ].
  - destruct (Nat.lt_ge_cases r L) as [Hr | Hr].
    + exists k, (S r), (w :: seen), far, (paid ++ meets w seen). now apply K.
    + assert (r = L) as -> by (pose proof (proj1 (w_count _ _ _ _ _ _ _ _ _ _ _ W)); lia).
      apply window_restart in W.
      exists (S k), 1, (w :: filter (relevant (e :: es)) (fast s)), (flat_map hub_in (fast s) ++ far),
        (paid ++ meets w (filter (relevant (e :: es)) (fast s))).
      apply K; trivial. rewrite filter_In. tauto.
Qed.

Lemma relevant_hub es w : relevant es w = true -> hub w = false.
Proof. unfold relevant. destruct (hub w); congruence. Qed.

Lemma relevant_other (e : event) es w x : (forall x, x <> w -> useful x (e :: es) = useful x es) ->
  x <> w -> relevant (e :: es) x = relevant es x.
Proof. intros Hu N. unfold relevant. destruct (hub x), (input x); auto. Qed.

Lemma window_step s e es k r arrivals reloads spent seen far paid debt :
  window s (e :: es) k r arrivals reloads spent seen far paid debt ->
  allowed s e -> length (fast (step s e)) <= M ->
  exists k' r' arrivals' reloads' seen' far' paid' debt',
    window (step s e) es k' r' arrivals' reloads' (spent + (cost_load e + cost_store e))
      seen' far' paid' debt'.
Proof.
  intros W He HM.
  destruct (w_size _ _ _ _ _ _ _ _ _ _ _ W) as [Z1 Z2].
  destruct (w_debt _ _ _ _ _ _ _ _ _ _ _ W) as [ND HD].
  pose proof (w_spent _ _ _ _ _ _ _ _ _ _ _ W) as Sp.
  pose proof (w_far _ _ _ _ _ _ _ _ _ _ _ W) as Fa.
  destruct e as [w | w | w | w | w | t]; cbn [cost_load cost_store].
  - (* Load *)
    assert (Ha : absorbed_before s (step s (Load w)) (Load w) es).
    { intros x t Hx. destruct s as [f ct m]. cbn [step content saved useful].
      destruct (same w x) as [-> | N].
      - rewrite upd_same, in_app_iff. tauto.
      - rewrite upd_other by exact N. tauto. }
    assert (Hs : forall h t, In t (content (step s (Load w)) h) -> w = h \/ In t (content s h)).
    { intros h t. destruct s as [f ct m]. cbn [step content].
      destruct (same w h) as [-> | N]; [ auto | ]. rewrite upd_other by exact N. auto. }
    assert (Hin : forall x, In x (fast s) -> In x (fast (step s (Load w)))).
    { destruct s as [f ct m]. intros x Hx. apply enter_In. now right. }
    (* a load that is no arrival *)
    assert (Q : (forall x, In x (fast (step s (Load w))) -> relevant es x = true -> In x (fast s)) ->
      NoDup (fast (step s (Load w))) ->
      window (step s (Load w)) es k r arrivals (reloads + length (hub_in w)) (spent + (1 + 0))
        seen (hub_in w ++ far) paid debt).
    { intros Hf HN. apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); trivial.
      - intros x Hx Hr. split; [ now apply Hf | exact Hr ].
      - intros h t Hh H. destruct (Hs h t H) as [-> | H']; [ left | right; auto ].
        apply in_or_app. left. now apply in_hub_in.
      - apply incl_appr, incl_refl.
      - rewrite app_length. lia.
      - assert (length (hub_in w) <= 1) by (unfold hub_in; destruct (hub w); cbn; lia). lia.
      - intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ]. }
    destruct (in_dec same w (fast s)) as [Hw | Hw].
    + assert (Ef : fast (step s (Load w)) = fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      do 8 eexists. apply Q; rewrite Ef; auto.
    + assert (Ef : fast (step s (Load w)) = w :: fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      destruct (relevant es w) eqn:Hrel.
      * destruct (window_arrive s (step s (Load w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (1 + 0)) debt W)
          as (k' & r' & seen' & far' & paid' & W'); trivial.
        -- intros h Hh. destruct s as [f ct m]. cbn [step content]. apply upd_other.
           intros ->. apply relevant_hub in Hrel. congruence.
        -- lia.
        -- intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ].
        -- exists k', r', (S arrivals), reloads, seen', far', paid', debt. exact W'.
      * do 8 eexists. apply Q; rewrite Ef.
        -- intros x [<- | Hx] Hr; [ congruence | exact Hx ].
        -- now constructor.
  - (* New *)
    destruct He as [Hw Hi].
    assert (Ef : fast (step s (New w)) = w :: fast s) by now destruct s.
    assert (Hu : forall x, x <> w -> useful x (New w :: es) = useful x es).
    { intros x Hx. cbn. destruct (same w x); congruence. }
    assert (Hd : forall x, In x debt -> In x (w :: fast s) /\ useful x es = true).
    { intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now right | ].
      rewrite Hu in H2; [ exact H2 | ]. intros ->. contradiction. }
    assert (Ha : absorbed_before s (step s (New w)) (New w) es).
    { intros x t Hx. destruct (same w x) as [-> | N].
      - destruct s as [f ct m]. cbn [step content saved]. rewrite upd_same.
        intros [[[] _] | H]. now right.
      - rewrite Hu by congruence. destruct s as [f ct m]. cbn [step content saved].
        now rewrite upd_other by exact N. }
    destruct (relevant es w) eqn:Hrel.
    + destruct (window_arrive s (step s (New w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (0 + 0)) (w :: debt) W)
        as (k' & r' & seen' & far' & paid' & W'); trivial.
      * intros h Hh. destruct s as [f ct m]. cbn [step content]. apply upd_other.
        intros ->. apply relevant_hub in Hrel. congruence.
      * cbn. lia.
      * constructor; [ intros H; apply Hw; now apply HD | exact ND ].
      * rewrite Ef. intros x [<- | Hx]; [ | now apply Hd ]. split; [ now left | ].
        unfold relevant in Hrel. destruct (hub w); [ discriminate | ]. now rewrite Hi in Hrel.
      * exists k', r', (S arrivals), reloads, seen', far', paid', (w :: debt). exact W'.
    + exists k, r, arrivals, reloads, seen, far, paid, debt.
      apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); rewrite ?Ef; trivial.
      * now rewrite <- Ef.
      * now constructor.
      * intros x [<- | Hx] Hr; [ congruence | ]. split; [ exact Hx | ].
        rewrite (relevant_other _ _ w); trivial. intros ->. contradiction.
      * intros h t Hh. destruct s as [f ct m]. cbn [step content fast].
        destruct (same w h) as [-> | N].
        -- rewrite upd_same. intros [].
        -- rewrite upd_other by exact N. cbn. auto.
      * apply incl_refl.
      * lia.
  - (* Store *)
    exists k, r, arrivals, reloads, seen, far, paid, (remove same w debt).
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx. split; [ exact Hx | ]. unfold relevant in *. cbn [useful].
      destruct (hub x), (input x), (same w x); auto.
    + auto.
    + intros x t Hx. cbn [useful step content saved]. destruct (same w x) as [-> | N].
      * rewrite upd_same. tauto.
      * rewrite upd_other by exact N. tauto.
    + apply incl_refl.
    + pose proof (remove_length same w debt ND). lia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (same w x); congruence.
  - (* Add *)
    exists k, r, arrivals, reloads, seen, far, paid, (remove same w debt).
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx. split; [ exact Hx | ]. unfold relevant in *. cbn [useful].
      destruct (hub x), (input x), (same w x); auto.
    + auto.
    + intros x t Hx. cbn [useful step content saved]. destruct (same w x) as [-> | N].
      * rewrite upd_same, in_app_iff. tauto.
      * rewrite upd_other by exact N. tauto.
    + apply incl_refl.
    + pose proof (remove_length same w debt ND). lia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (same w x); congruence.
  - (* Drop *)
    exists k, r, arrivals, reloads, seen, far, paid, debt.
    destruct s as [f ct m]. cbn [step fast content] in *.
    assert (Hu : forall x, x <> w -> useful x (Drop w :: es) = useful x es).
    { intros x Hx. cbn. destruct (same w x); congruence. }
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + now apply remove_NoDup.
    + intros x Hx Hr. apply in_remove in Hx as [Hx Hxw]. split; [ exact Hx | ].
      now rewrite (relevant_other _ _ w).
    + intros h t Hh. destruct (same w h) as [-> | N].
      * rewrite upd_same. intros [].
      * rewrite upd_other by exact N. intros H. right. split; [ exact H | ].
        intros Hf. apply in_in_remove; auto.
    + intros x t Hx. cbn [step content saved]. destruct (same w x) as [-> | N].
      * rewrite upd_same. intros [[[] _] | H]. now right.
      * rewrite upd_other, Hu by congruence. tauto.
    + apply incl_refl.
    + lia.
    + intros x Hx. destruct (HD x Hx) as [H1 H2].
      assert (Hxw : x <> w).
      { intros ->. cbn in H2. destruct (same w w); congruence. }
      split; [ apply in_in_remove; auto | now rewrite <- Hu ].
  - (* Do *)
    destruct He as [Hn Hr]. exists k, r, arrivals, reloads, seen, far, paid, debt.
    assert (Ef : fast (step s (Do t)) = fast s) by now destruct s.
    assert (Em : saved (step s (Do t)) = saved s) by now destruct s.
    assert (Fs : forall x, In x (needs t) -> relevant es x = true -> In x seen).
    { intros x Hx Hx'. apply (w_fast _ _ _ _ _ _ _ _ _ _ _ W); [ now apply Hn | exact Hx' ]. }
    assert (Fi : forall x, In x (needs t) -> input x = true -> In x seen).
    { intros x Hx Hi. apply Fs; [ exact Hx | ]. unfold relevant. rewrite Hi.
      destruct (hub x) eqn:Hh; [ apply hubs_made in Hh; congruence | reflexivity ]. }
    assert (Ec : forall x t', In t' (content (step s (Do t)) x) ->
      In t' (content s x) \/ (t' = t /\ In x (outs t))).
    { intros x t'. destruct s as [f ct m]. cbn [step content]. unfold absorb.
      destruct (in_dec (word_dec X) x (outs t)) as [Ho | Ho]; [ | auto ].
      intros [-> | H]; auto. }
    destruct W as [C Sp' De S F Z Me P Fa' Hb Ab]. rewrite Nat.add_0_r.
    split; rewrite ?Ef, ?Em; trivial.
    + (* hubs *)
      intros h t' Hh H. destruct (Ec h t' H) as [H' | [-> Ho]]; [ auto | right ].
      split; [ apply Hn; now apply outs_needed | exact Fi ].
    + (* absorbed tasks *)
      intros w t' Hw H. destruct H as [[H Hu] | H]; [ | auto ].
      destruct (Ec w t' H) as [H' | [-> Ho]]; [ auto | ].
      destruct (in_dec same (hub_of t) far) as [Hf | Hf]; [ now left | right ].
      assert (Si : forall x, In x (flat_map needs (t :: deps t)) -> input x = true \/ x = w -> In x seen).
      { intros x Hx [Hi | ->].
        - apply in_flat_map in Hx as (t' & [<- | Ht'] & Hx); [ auto | ].
          destruct (deps_ready t _ Hr t' Ht') as [Hh Hc].
          destruct (Hb _ _ Hh Hc) as [? | [_ Hs]]; [ contradiction | auto ].
        - apply Fs; [ now apply outs_needed | ]. unfold relevant. rewrite Hw.
          destruct (input w); trivial. }
      intros x y Hx Hy N Ix Iy. apply Me; auto.
Qed.

Lemma window_run es : forall s k r arrivals reloads spent seen far paid debt,
  window s es k r arrivals reloads spent seen far paid debt -> valid M s es ->
  exists k' r' arrivals' reloads' seen' far' paid' debt',
    window (run s es) [] k' r' arrivals' reloads' (spent + traffic es) seen' far' paid' debt'.
Proof.
  induction es as [| e es IH]; intros s k r ar rl spent seen far paid debt W V.
  - exists k, r, ar, rl, seen, far, paid, debt. cbn. now rewrite Nat.add_0_r.
  - destruct V as (He & HM & V).
    destruct (window_step _ _ _ _ _ _ _ _ _ _ _ _ W He HM)
      as (k1 & r1 & a1 & l1 & s1 & f1 & p1 & d1 & W1).
    destruct (IH _ _ _ _ _ _ _ _ _ _ W1 V) as (k2 & r2 & a2 & l2 & s2 & f2 & p2 & d2 & W2).
    exists k2, r2, a2, l2, s2, f2, p2, d2. unfold traffic in *. cbn [total].
    now rewrite Nat.add_assoc.
Qed.

Theorem window_meeting es : valid M (init X) es ->
  exists k arrivals reloads (far : list word) (paid : list (word * word)),
    length paid <= (M + L - 1) * arrivals /\
    length far <= k * M + reloads /\
    k * L <= arrivals /\
    arrivals + reloads <= traffic es /\
    forall w t, hub w = false -> In t (saved (run (init X) es) w) ->
      In (hub_of t) far \/ met_by_task paid t w.
Proof.
  intros V. destruct (window_run es (init X) 0 0 0 0 0 [] [] [] [])
    as (k & r & ar & rl & seen & far & paid & debt & W); trivial.
  { split; cbn; try contradiction; try (split; [ lia | constructor ]);
      try (split; [ constructor | ]); try lia; tauto. }
  cbn [Nat.add] in W. destruct W as [[C1 C2] Sp [_ De] _ _ _ _ P Fa _ Ab].
  exists k, ar, rl, far, paid. split; [ exact P | split; [ exact Fa | split; [ lia | split ] ] ].
  - destruct debt as [| w debt]; [ cbn in Sp; lia | ].
    destruct (De w (or_introl eq_refl)) as [_ H]. discriminate H.
  - intros w t Hw H. apply Ab; auto.
Qed.
End Windows.

(* The arithmetic of windows: of v pairs that want D word pairs each, at most those
   given up (one for each hub in far) have not met. *)
Lemma window_count M L D v near far paid k arrivals reloads total :
  L <= M -> v <= near + far -> near * D <= paid ->
  paid <= (M + L - 1) * arrivals -> far <= k * M + reloads -> k * L <= arrivals ->
  arrivals + reloads <= total ->
  L * (v * D) <= (L * (M + L - 1) + D * M) * total.
Proof.
  intros HL Hv Hn P Fa Hk T. set (A := M + L - 1) in *. clearbody A.
  assert (B1 : L * (v * D) <= L * (near * D) + L * (far * D)).
  { rewrite <- Nat.mul_add_distr_l, <- Nat.mul_add_distr_r.
    apply Nat.mul_le_mono_l, Nat.mul_le_mono_r. exact Hv. }
  assert (B2 : L * (near * D) <= L * (A * arrivals)) by (apply Nat.mul_le_mono_l; lia).
  assert (B3 : L * far <= M * arrivals + M * reloads).
  { assert (L * far <= L * (k * M + reloads)) by (apply Nat.mul_le_mono_l; exact Fa).
    assert (M * (k * L) <= M * arrivals) by (apply Nat.mul_le_mono_l; lia).
    assert (L * reloads <= M * reloads) by (apply Nat.mul_le_mono_r; exact HL). lia. }
  apply (Nat.mul_le_mono_r _ _ D) in B3.
  assert (B4 : (L * A + D * M) * (arrivals + reloads) <= (L * A + D * M) * total)
    by (apply Nat.mul_le_mono_l; lia).
  lia.
Qed.
